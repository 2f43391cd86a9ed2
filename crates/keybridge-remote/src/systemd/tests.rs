use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::home::acquire_lock::acquire;

/// A home with units of the system's beside it, and a lane's folder for the record.
struct Host {
    folder: TempDir,
    units: UserUnits,
}

impl Host {
    fn new() -> Self {
        let folder = keybridge_lab::short_folder("kbs");
        for name in ["home", "run", "lane", "etc", "lib"] {
            keybridge_lab::make_private(&folder.path().join(name));
        }
        let at = |name: &str| folder.path().join(name);
        let units = UserUnits {
            home: at("home"),
            folders: vec![at("etc"), at("lib")],
            runtime_folder: at("run"),
            manager: UserManager::new(at("run")),
            is_booted: true,
        };
        let host = Self { folder, units };
        host.write("lib/gpg-agent.socket", "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\n");
        host
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.at("run/gnupg/S.gpg-agent")
    }

    fn own(&self, name: &str) -> PathBuf {
        self.at("home/.config/systemd/user").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn owners(&self) -> Vec<String> {
        self.units.listening_at(&self.socket()).iter().map(ToString::to_string).collect()
    }

    async fn footprint(&self) -> Footprint {
        let acquired = acquire(&self.at("lane"), Path::new("/S"), None, false).await;
        let environment = Environment { home: Some(self.at("home")), ..Environment::default() };
        let discovered = crate::SshFolder::find(&environment, None).unwrap();
        Footprint::read(acquired.unwrap(), &crate::DiscoveredLane::Ssh(discovered.into()))
    }

    async fn mask(&self, footprint: &Footprint) -> Vec<String> {
        self.units.mask_owners(&self.socket(), footprint).await
    }

    async fn undo(&self, footprint: &Footprint) {
        for change in footprint.changes().into_iter().rev() {
            match change {
                Change::MaskedUnit(name, before) => {
                    self.units.unmask(&name, before).await.unwrap();
                }
                Change::CreatedUnitFolders(count) => self.units.remove_folders(count).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn is_mask(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == Path::new("/dev/null"))
}

#[test]
fn a_unit_listens_where_its_file_and_what_is_added_to_it_say() {
    let host = Host::new();
    assert_eq!(host.owners(), ["gpg-agent.socket"]);
    host.write("lib/x.socket", "[Socket]\nListenStream = %h/../run/gnupg/S.gpg-agent\n");
    host.write("lib/y.socket", "[Unit]\nListenStream=%t/gnupg/S.gpg-agent\n[Socket]\n");
    host.write("lib/z@.socket", "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\n");
    host.write("lib/odd.socket", "[Socket]\nListenStream=%q%t/gnupg/S.gpg-agent\n%\n");
    host.write("lib/a.service", "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\n");
    let full = format!("[Socket]\nListenStream=/1\nListenStream={}\n", host.socket().display());
    host.write("lib/full.socket", &full);
    assert_eq!(host.owners(), ["full.socket", "gpg-agent.socket"]);

    host.write("etc/full.socket", "[Socket]\nListenStream=/1\n");
    assert_eq!(host.owners(), ["gpg-agent.socket"], "the first folder counts");
    host.write("etc/gpg-agent.socket.d/b.conf", "[Socket]\nListenStream=\n");
    assert_eq!(host.owners(), Vec::<String>::new());
    host.write("lib/gpg-agent.socket.d/c.conf", "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\n");
    assert_eq!(host.owners(), ["gpg-agent.socket"]);

    symlink("/dev/null", host.at("etc/gpg-agent.socket")).unwrap();
    std::fs::remove_dir_all(host.at("lib/gpg-agent.socket.d")).unwrap();
    assert_eq!(host.owners(), Vec::<String>::new(), "masked for all users");
    let unbooted = UserUnits { is_booted: false, ..Host::new().units };
    assert_eq!(unbooted.listening_at(&host.socket()), []);
}

#[tokio::test]
async fn a_mask_and_its_folders_come_and_go() {
    let host = Host::new();
    let footprint = host.footprint().await;
    for _ in 0..2 {
        assert_eq!(host.mask(&footprint).await, Vec::<String>::new());
        assert!(is_mask(&host.own("gpg-agent.socket")));
        let name = "gpg-agent.socket".parse().unwrap();
        let masked = Change::MaskedUnit(name, ActiveState::Unknown);
        assert_eq!(footprint.changes(), [Change::CreatedUnitFolders(3), masked]);
    }
    // Somebody has taken it away while the bridge was up.
    std::fs::remove_file(host.own("gpg-agent.socket")).unwrap();
    host.mask(&footprint).await;
    assert!(is_mask(&host.own("gpg-agent.socket")));
    for _ in 0..2 {
        host.undo(&footprint).await;
        assert_eq!(std::fs::read_dir(host.at("home")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn what_the_user_has_in_the_folder_stays() {
    let host = Host::new();
    std::fs::create_dir_all(host.at("home/.config/systemd")).unwrap();
    let footprint = host.footprint().await;
    host.mask(&footprint).await;
    std::fs::write(host.own("other.service"), "").unwrap();
    host.undo(&footprint).await;
    assert!(host.own("other.service").exists());
    assert!(!host.own("gpg-agent.socket").is_symlink());
    std::fs::remove_file(host.own("other.service")).unwrap();
    host.undo(&footprint).await;
    assert!(!host.at("home/.config/systemd/user").exists());
    assert!(host.at("home/.config/systemd").exists(), "the user's own folder stays");
}

#[tokio::test]
async fn a_unit_that_the_user_has_masked_stays_masked() {
    let host = Host::new();
    std::fs::create_dir_all(host.own("")).unwrap();
    symlink("/dev/null", host.own("gpg-agent.socket")).unwrap();
    let footprint = host.footprint().await;
    assert_eq!(host.mask(&footprint).await, Vec::<String>::new());
    assert_eq!(footprint.changes(), []);
    assert!(is_mask(&host.own("gpg-agent.socket")));
}

#[tokio::test]
async fn a_unit_of_the_users_own_is_left_alone_and_named() {
    let host = Host::new();
    let text = "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\n";
    host.write("home/.config/systemd/user/gpg-agent.socket", text);
    let footprint = host.footprint().await;
    let warnings = host.mask(&footprint).await;
    assert!(warnings[0].contains("gpg-agent.socket is not masked"), "{warnings:?}");
    assert!(warnings[0].contains("is a unit of the user's own"), "{warnings:?}");
    assert_eq!(footprint.changes(), []);
    assert_eq!(std::fs::read_to_string(host.own("gpg-agent.socket")).unwrap(), text);
}

#[tokio::test]
async fn a_file_that_has_taken_the_place_of_a_mask_stays() {
    let host = Host::new();
    let footprint = host.footprint().await;
    host.mask(&footprint).await;
    let kept = host.at("kept");
    std::fs::write(&kept, "mine").unwrap();
    for take_place in [
        |path: &Path, _: &Path| std::fs::write(path, "[Socket]\n").unwrap(),
        |path: &Path, kept: &Path| symlink(kept, path).unwrap(),
    ] {
        let path = host.own("gpg-agent.socket");
        std::fs::remove_file(&path).unwrap();
        take_place(&path, &kept);
        host.undo(&footprint).await;
        assert!(path.symlink_metadata().is_ok());
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "mine");
    }
}

#[tokio::test]
async fn a_folder_that_others_can_write_to_gets_no_mask_and_loses_none() {
    let host = Host::new();
    let config = host.at("home/.config");
    std::fs::create_dir_all(&config).unwrap();
    keybridge_lab::set_mode(&config, 0o777);
    let footprint = host.footprint().await;
    let warnings = host.mask(&footprint).await;
    assert!(warnings[0].contains("can be written by others"), "{warnings:?}");
    assert_eq!(footprint.changes(), []);
    assert_eq!(std::fs::read_dir(&config).unwrap().count(), 0);

    std::fs::create_dir_all(host.own("")).unwrap();
    symlink("/dev/null", host.own("gpg-agent.socket")).unwrap();
    let name: UnitName = "gpg-agent.socket".parse().unwrap();
    assert!(host.units.unmask(&name, ActiveState::Active).await.is_err());
    assert!(is_mask(&host.own("gpg-agent.socket")));
}

#[tokio::test]
async fn a_unit_that_a_login_starts_is_named_with_the_command_that_masks_it() {
    let host = Host::new();
    let starting = async || host.units.starting_at(&host.socket()).await;
    assert_eq!(starting().await, [], "nothing wants it");
    host.write("lib/sockets.target.wants/gpg-agent.socket", "");
    let [(name, command)] = starting().await.try_into().unwrap();
    assert_eq!(name.as_str(), "gpg-agent.socket");
    let done = std::process::Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(done.success() && is_mask(&host.own("gpg-agent.socket")), "{command}");
    assert_eq!(starting().await, []);
    host.write("run/systemd/private", "");
    std::fs::remove_file(host.own("gpg-agent.socket")).unwrap();
    let [(_, command)] = starting().await.try_into().unwrap();
    let shown = host.at("run").display().to_string();
    let expected = format!("XDG_RUNTIME_DIR={shown} systemctl --user mask --now gpg-agent.socket");
    assert_eq!(command, expected);
}
