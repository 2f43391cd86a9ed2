//! Files of the user's are edited in folders of the helper's own user alone, and over no link that
//! somebody else made.

use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::lab::{Setup, SshHome, User, agreeable, run};
use keybridge_proto::report::FailureKind;
use tempfile::TempDir;

const DEV: u32 = 4321;

/// The home of another user, where a helper of root has to do nothing.
struct OtherHome(TempDir);

impl OtherHome {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kbo").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(), Some(DEV), Some(DEV)).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A link of that user's.
    fn link(&self, name: &str, to: &Path) {
        symlink(to, self.file(name)).unwrap();
        lchown(self.file(name), Some(DEV), Some(DEV)).unwrap();
    }

    /// Nothing came into it, and nothing went.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn with_git(user: &User, agent: &SshHome) -> Setup {
    let key = format!("ssh={}", agent.public_key("key").trim());
    user.helper("ssh", &agent.socket()).arg("--git").arg(key)
}

/// git's settings are not edited, and that is a warning.
async fn is_left_alone(setup: Setup) -> String {
    let (helper, ready) = setup.ready().await;
    assert!(helper.stop().await.success());
    assert_eq!(ready.warnings.len(), 1, "{ready:?}");
    assert!(ready.warnings[0].starts_with("git is not set up to sign: "), "{ready:?}");
    ready.warnings[0].clone()
}

#[test]
fn root_creates_and_removes_nothing_through_a_dangling_link_of_another_user() {
    run(async {
        let (user, agent, dev) = (User::new(), SshHome::with_key(), OtherHome::new());
        let target = user.elsewhere("target");
        dev.link(".gitconfig", &target);
        let home = dev.0.path().to_owned();
        let setup = || with_git(&user, &agent).env("HOME", Some(home.as_os_str()));
        // While the helper runs, too.
        let (helper, ready) = setup().ready().await;
        assert!(!target.exists(), "root made a file where a link of another user leads");
        assert!(ready.warnings[0].contains(&format!("uid {DEV}")), "{ready:?}");
        assert!(helper.stop().await.success());
        // A file that is there stays as it is.
        std::fs::write(&target, "precious\n").unwrap();
        is_left_alone(setup()).await;
        assert_eq!(std::fs::read(&target).unwrap(), b"precious\n");
        assert_eq!(dev.names(), [".gitconfig"]);
    });
}

#[test]
fn root_with_the_home_of_another_user_touches_nothing_there() {
    run(async {
        let (user, agent, dev) = (User::new(), SshHome::with_key(), OtherHome::new());
        let home = dev.0.path().to_owned();
        is_left_alone(with_git(&user, &agent).env("HOME", Some(home.as_os_str()))).await;
        assert_eq!(dev.names(), Vec::<String>::new());
        std::fs::write(dev.file(".gitconfig"), "[a]\n").unwrap();
        is_left_alone(with_git(&user, &agent).env("HOME", Some(home.as_os_str()))).await;
        let named = dev.file("named");
        let setup = with_git(&user, &agent).env("GIT_CONFIG_GLOBAL", Some(named.as_os_str()));
        is_left_alone(setup).await;
        assert_eq!(std::fs::read(dev.file(".gitconfig")).unwrap(), b"[a]\n");
        assert_eq!(dev.names(), [".gitconfig"]);
    });
}

#[test]
fn files_of_the_lanes_are_not_edited_where_others_can_write() {
    run(async {
        let (user, agent, dev) = (User::new(), SshHome::with_key(), OtherHome::new());
        // ssh: the user's own link leads into the folder of another user.
        user.make_folder();
        symlink(dev.file("config"), user.file(".ssh/config")).unwrap();
        let (helper, ready) = user.helper("ssh", &agent.socket()).ready().await;
        assert_eq!(ready.warnings.len(), 1, "{ready:?}");
        assert!(ready.warnings[0].contains(dev.0.path().to_str().unwrap()), "{ready:?}");
        assert!(helper.stop().await.success());
        // A folder that everybody can write to is as bad as that of another user.
        let open = user.elsewhere("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let named = open.join("named");
        let setup = with_git(&user, &agent).env("GIT_CONFIG_GLOBAL", Some(named.as_os_str()));
        let (helper, ready) = setup.ready().await;
        assert!(ready.warnings.iter().any(|text| text.contains("mode 1777")), "{ready:?}");
        assert!(!named.exists());
        assert!(helper.stop().await.success());
        // gpg: nothing works without its lines.
        let gnupg = user.file(".gnupg");
        std::fs::create_dir(&gnupg).unwrap();
        std::fs::set_permissions(&gnupg, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(dev.file("gpg.conf"), gnupg.join("gpg.conf")).unwrap();
        let failure = user.helper_with("gpg", &agreeable().path(), &agent.socket()).failure().await;
        assert_eq!(failure.kind, FailureKind::NotPermitted, "{failure:?}");
        assert!(failure.message.contains("gpg.conf"), "{failure:?}");
        assert!(!failure.hints.is_empty());
        assert_eq!(dev.names(), Vec::<String>::new());
    });
}

#[test]
fn links_of_the_users_own_are_followed() {
    run(async {
        let (user, agent) = (User::new(), SshHome::with_key());
        let kept = user.elsewhere("dotfiles");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("git"), "[a]\n").unwrap();
        symlink(kept.join("git"), user.file(".gitconfig")).unwrap();
        user.make_folder();
        symlink(kept.join("ssh"), user.file(".ssh/config")).unwrap();
        let (helper, ready) = with_git(&user, &agent).ready().await;
        assert_eq!(ready.warnings, Vec::<String>::new());
        assert!(std::fs::read_to_string(kept.join("git")).unwrap().contains("includeIf"));
        assert!(std::fs::read_to_string(kept.join("ssh")).unwrap().contains("IdentityAgent"));
        assert!(helper.stop().await.success());
        assert_eq!(std::fs::read(kept.join("git")).unwrap(), b"[a]\n");
        assert!(!kept.join("ssh").exists() && user.file(".ssh/config").is_symlink());
    });
}
