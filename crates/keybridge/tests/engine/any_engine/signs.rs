//! One command, and every tool in a fresh container signs and decrypts with the keys of the host.

use crate::lab::{ContainerLab, Image, Program, USER, gpg_version, run, run_with, text};

/// Signs and verifies with git and gpg, and decrypts what was encrypted at home. Nothing is set up
/// but the name that git wants.
#[track_caller]
pub fn assert_works(scene: &ContainerLab, user: Option<&str>) {
    let ContainerLab { lab, container } = scene;
    let committed = container.sh(
        user,
        "cd \"$(mktemp -d /tmp/repository-XXXXXX)\"
        git init --quiet .
        git config user.name Lab
        git config user.email lab@keybridge.example
        git commit --quiet --allow-empty -S -m signed
        git verify-commit HEAD 2>&1
        git log -1 --format=%GF%n%GT",
    );
    let fingerprint = lab.host.fingerprint();
    assert!(committed.contains("Good signature from"), "{committed}");
    assert!(committed.trim_end().ends_with("\nultimate"), "{committed}");
    let verified = container.sh(
        user,
        "cd \"$(mktemp -d /tmp/file-XXXXXX)\"
        echo words >file
        gpg --batch --detach-sign file
        gpg --batch --status-fd 1 --verify file.sig file 2>/dev/null",
    );
    assert!(verified.contains("GOODSIG") && verified.contains("TRUST_ULTIMATE"), "{verified}");

    let secret = run_with(&mut lab.host.gpg(["--encrypt", "-r", USER]), b"for your eyes only\n");
    let decrypted = container.sh_with(user, "gpg --batch -d 2>/dev/null", &secret);
    assert_eq!(text(&decrypted), "for your eyes only\n");

    let listed = container.sh(user, "gpg --batch --list-secret-keys --with-colons 2>/dev/null");
    let keys: Vec<Vec<&str>> = listed.lines().map(|line| line.split(':').collect()).collect();
    let secrets: Vec<_> = keys.iter().filter(|key| key[0] == "sec" || key[0] == "ssb").collect();
    // The primary key only certifies, which isn't lent.
    let there: Vec<_> = secrets.iter().map(|key| (key[0], key[14])).collect();
    assert_eq!(there, [("sec", "#"), ("ssb", "+"), ("ssb", "+")], "{listed}");
    assert!(keys.iter().any(|key| key[0] == "fpr" && key[9] == fingerprint), "{listed}");

    let trust = container.sh(user, "gpg --batch --export-ownertrust 2>/dev/null");
    let trust_at_home = text(&run(&mut lab.host.gpg(["--export-ownertrust"])));
    assert_eq!(trust_lines(&trust), trust_lines(&trust_at_home));
}

fn trust_lines(export: &str) -> Vec<&str> {
    export.lines().filter(|line| !line.starts_with('#')).collect()
}

/// After `down`: no helper, no socket, no marked line, no agent, and nothing signs.
#[track_caller]
pub fn assert_undone(scene: &ContainerLab, user: Option<&str>, home: &str) {
    let container = &scene.container;
    assert_eq!(scene.helpers(), Vec::<String>::new());
    assert_eq!(container.processes("gpg-agent"), Vec::<String>::new());
    let sockets = container.sh(user, &format!("find {home} /tmp /run -type s 2>/dev/null || true"));
    let sockets: Vec<_> = sockets.lines().filter(|path| !path.contains("keyboxd")).collect();
    assert_eq!(sockets, Vec::<&str>::new());
    let marked = container.try_sh(user, &format!("grep -l keybridge {home}/.gnupg/*.conf"));
    assert_eq!(text(&marked.stdout), "", "marked lines stay");
}

/// The whole way in a fresh container.
#[track_caller]
pub fn fresh(
    engine: Program,
    image: Image,
    start: &[&str],
    up: &[&str],
    user: Option<&str>,
    home: &str,
) {
    let scene = ContainerLab::new_in(engine, image, start);
    let shown = scene.up(up);
    assert!(shown.contains(&format!("gpg-agent {} answers", gpg_version())), "{shown}");
    assert_works(&scene, user);
    assert_eq!(scene.helpers().len(), 1);
    scene.down();
    assert_undone(&scene, user, home);
    assert!(!scene.signs(user).status.success());
}

/// The tests that every engine's containers pass. `fresh` is the caller's, and names the engine.
macro_rules! fresh_containers {
    () => {
        #[test]
        fn a_bookworm_container_as_root() {
            fresh(Image::Bookworm, &[], &[], None, "/root");
        }

        #[test]
        fn a_bookworm_container_as_a_normal_user() {
            fresh(Image::Bookworm, &[], &["--user", "dev"], Some("dev"), "/home/dev");
        }

        #[test]
        fn a_trixie_container_as_root() {
            fresh(Image::Trixie, &[], &[], None, "/root");
        }

        #[test]
        fn a_trixie_container_as_a_normal_user() {
            fresh(Image::Trixie, &[], &["--user", "dev"], Some("dev"), "/home/dev");
        }

        #[test]
        fn the_user_that_a_dev_container_names() {
            let label =
                r#"devcontainer.metadata=[{"remoteUser":"root"},{"remoteUser":"dev"},{"x":1}]"#;
            fresh(Image::Trixie, &["--label", label], &[], Some("dev"), "/home/dev");
        }
    };
}

pub(crate) use fresh_containers;
