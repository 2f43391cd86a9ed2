//! What is looked at before anything is changed: each wrong thing has its own error, and stays.

use std::cell::RefCell;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::lab::{Client, Home, ScriptedAgent, Setup, agreeable, run, until};
use keybridge_lab::{leave_dead_socket, write_program};
use keybridge_proto::report::{Failure, FailureKind};

const NOBODY_ELSE: u32 = 4321;

async fn failure(home: &Path) -> Failure {
    Setup::new(home, Path::new("/nonexistent")).failure().await
}

fn assert_names(failure: &Failure, kind: FailureKind, path: &Path) {
    assert_eq!(failure.kind, kind, "{failure:?}");
    assert!(failure.message.contains(path.to_str().unwrap()), "{failure:?}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder that another user can reach the program in.
fn reachable_program(home: &Home) -> PathBuf {
    let program = home.file("keybridge-remote");
    write_program(&program, std::fs::read(crate::lab::program()).unwrap());
    set_mode(home.path(), 0o711);
    program
}

/// Nothing of ours is in a home that was refused.
fn assert_untouched(home: &Home) {
    assert!(!home.file("gpg.conf").exists());
}

#[test]
fn a_home_that_is_not_there() {
    run(async {
        let home = Home::new();
        let missing = home.file("missing");
        let failure = failure(&missing).await;
        assert_names(&failure, FailureKind::NotFound, &missing);
        assert!(
            failure.hints.iter().any(|hint| hint.starts_with("mkdir -p -m 700")),
            "{failure:?}"
        );
        assert!(!missing.exists());
        // What a person copies into a shell names the same folder.
        let missing = home.file("it's missing");
        let failure = self::failure(&missing).await;
        let folder = home.path().display();
        let hint = format!(r"mkdir -p -m 700 '{folder}/it'\''s missing'");
        assert!(failure.hints.contains(&hint), "{failure:?}");
    });
}

#[test]
fn the_default_home_is_made() {
    run(async {
        let (user, agent) = (Home::new(), agreeable());
        let home = user.file(".gnupg");
        let (helper, ready) = Setup::new(&home, &agent.path())
            .env("GNUPGHOME", None)
            .env("HOME", Some(user.path().as_os_str()))
            .ready()
            .await;
        assert_eq!(ready.home, home.display().to_string());
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o7777, 0o700);
        assert!(helper.stop().await.success());
    });
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_home_of_somebody_else_is_never_to_be_given_away() {
    run(async {
        let home = Home::new();
        chown(home.path(), Some(NOBODY_ELSE), None).unwrap();
        let failure = failure(home.path()).await;
        assert_names(&failure, FailureKind::NotPermitted, home.path());
        assert_eq!(failure.hints, [format!("bridge as uid {NOBODY_ELSE}")]);
        assert_untouched(&home);
    });
}

#[test]
fn a_home_that_is_open_to_others() {
    run(async {
        let home = Home::new();
        for mode in [0o770, 0o702, 0o777] {
            std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let failure = failure(home.path()).await;
            assert_names(&failure, FailureKind::NotPermitted, home.path());
            assert!(failure.hints.iter().any(|hint| hint.starts_with("chmod 700")));
        }
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_untouched(&home);
    });
}

#[test]
fn a_home_that_is_a_link_or_a_file() {
    run(async {
        let home = Home::new();
        let (link, file) = (home.file("link"), home.file("file"));
        symlink(home.path(), &link).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_names(&failure(&link).await, FailureKind::NotPermitted, &link);
        assert_names(&failure(&file).await, FailureKind::NotPermitted, &file);
        assert_untouched(&home);
    });
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_way_to_the_home_that_others_can_change() {
    run(async {
        let (outer, agent) = (Home::new(), agreeable());
        let program = reachable_program(&outer);
        let (way, link) = (outer.file("way"), outer.file("link"));
        let home = way.join("home");
        std::fs::create_dir_all(&home).unwrap();
        set_mode(&home, 0o700);
        symlink("way", &link).unwrap();
        chown(&home, Some(NOBODY_ELSE), Some(NOBODY_ELSE)).unwrap();
        let linked = link.join("home");
        let setup = |home: &Path| Setup::as_uid(NOBODY_ELSE, &program, home, &agent.path());
        for (owner, mode, safe) in [
            (0, 0o755, true),
            (0, 0o1777, true),
            (NOBODY_ELSE, 0o755, true),
            (0, 0o757, false),
            (NOBODY_ELSE, 0o775, false),
            (NOBODY_ELSE + 1, 0o755, false),
        ] {
            chown(&way, Some(owner), Some(owner)).unwrap();
            set_mode(&way, mode);
            for path in [&home, &linked] {
                if safe {
                    assert!(setup(path).ready().await.0.stop().await.success());
                } else {
                    assert_names(&setup(path).failure().await, FailureKind::NotPermitted, &way);
                }
                assert!(!home.join("gpg.conf").exists());
            }
        }
        chown(&way, Some(NOBODY_ELSE), None).unwrap();
        lchown(&link, Some(NOBODY_ELSE + 1), None).unwrap();
        assert_names(&setup(&linked).failure().await, FailureKind::NotPermitted, &link);
        assert!(setup(&home).ready().await.0.stop().await.success());
    });
}

#[test]
fn the_hosts_own_home() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let metadata = std::fs::metadata(home.path()).unwrap();
        let id = format!("{}:{}", metadata.dev(), metadata.ino());
        let setup = Setup::new(home.path(), &agent.path()).arg("--host-home").arg(id);
        assert_names(&setup.failure().await, FailureKind::SameHome, home.path());
        assert_untouched(&home);
        let other = format!("{}:{}", metadata.dev(), metadata.ino() + 1);
        let setup = Setup::new(home.path(), &agent.path()).arg("--host-home").arg(other);
        assert!(setup.ready().await.0.stop().await.success());
    });
}

#[test]
fn gnupg_that_is_missing_or_too_old() {
    run(async {
        let home = Home::new();
        let nothing = home.file("bin");
        std::fs::create_dir(&nothing).unwrap();
        let setup = |path: &Path| {
            Setup::new(home.path(), Path::new("/nonexistent")).env("PATH", Some(path.as_os_str()))
        };
        let failure = setup(&nothing).failure().await;
        assert_eq!(failure.kind, FailureKind::NoGnupg);
        assert!(failure.hints.contains(&"install gnupg in the target".to_owned()));
        let old = nothing.join("gpg");
        write_program(&old, "#!/bin/sh\necho 'gpg (GnuPG) 1.4.23'\n");
        let failure = setup(&nothing).failure().await;
        assert_eq!(failure.kind, FailureKind::NoGnupg);
        assert!(failure.message.contains("1.4.23"), "{failure:?}");
        // One that prints without end and never ends is not waited for.
        write_program(&old, "#!/bin/sh\nwhile :; do echo 'gpg (GnuPG) 2.2.40'; done\n");
        let failure = setup(&nothing).failure().await;
        assert_eq!(failure.kind, FailureKind::NoGnupg);
        assert_untouched(&home);
    });
}

#[test]
fn a_socket_path_that_is_too_long() {
    run(async {
        let outer = Home::new();
        let home = outer.file(&"x".repeat(100));
        std::fs::create_dir(&home).unwrap();
        set_mode(&home, 0o700);
        let setup = Setup::new(&home, Path::new("/nonexistent"));
        let failure = setup.with_sockets_in(&home, outer.path()).failure().await;
        assert!(failure.message.contains("107"), "{failure:?}");
        assert!(failure.hints.iter().any(|hint| hint.contains("shorter")), "{failure:?}");
        assert!(!home.join("gpg.conf").exists());
    });
}

#[test]
fn an_agent_without_secret_keys_is_ended() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        home.start_agent().await;
        // gpg-agent makes this folder; without a key in it there is nothing to lose.
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut client = Client::greeted(&home.socket()).await;
        assert_eq!(client.ask("NOP").await, ["OK\n"]);
        assert!(helper.stop().await.success());
        assert!(!home.has_socket() && !home.file("gpg.conf").exists());
    });
}

#[test]
fn an_agent_with_secret_keys_is_left_alone() {
    run(async {
        let home = Home::with_key("Bob <bob@example.org>").await;
        home.start_agent().await;
        let before = std::fs::metadata(home.socket()).unwrap().ino();
        let refused = failure(home.path()).await;
        assert_names(&refused, FailureKind::InUse, &home.socket());
        assert!(refused.message.contains("gpg-agent (pid "), "{refused:?}");
        assert!(refused.hints.iter().any(|hint| hint.contains("--replace")), "{refused:?}");
        assert_untouched(&home);
        assert_eq!(std::fs::metadata(home.socket()).unwrap().ino(), before);
        let mut client = Client::greeted(&home.socket()).await;
        assert!(client.ask("KEYINFO --list").await.len() > 1);

        let agent = agreeable();
        let (helper, _) = Setup::new(home.path(), &agent.path()).arg("--replace").ready().await;
        let mut through = Client::greeted(&home.socket()).await;
        assert_eq!(through.ask("KEYINFO --list").await, ["OK\n"]);
        // The one that had it lives on for those that it serves.
        assert!(client.ask("KEYINFO --list").await.len() > 1);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn another_bridge_is_left_alone() {
    run(async {
        let host = Home::with_key("Carol <carol@example.org>").await;
        host.start_agent().await;
        let home = Home::new();
        let (first, _) = Setup::new(home.path(), &host.extra_socket()).ready().await;
        let conf = std::fs::read(home.file("gpg.conf")).unwrap();
        let failure = failure(home.path()).await;
        assert_names(&failure, FailureKind::InUse, &home.socket());
        assert!(failure.message.contains("keybridge-remot"), "{failure:?}");
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), conf);
        Client::greeted(&home.socket()).await;
        assert!(first.stop().await.success());
    });
}

#[test]
fn something_silent_at_the_path_is_in_use() {
    run(async {
        let home = Home::new();
        let _silent = UnixListener::bind(home.socket()).unwrap();
        let failure = failure(home.path()).await;
        assert_names(&failure, FailureKind::InUse, &home.socket());
        assert!(home.has_socket());
        assert_untouched(&home);
    });
}

#[test]
fn a_stale_socket_is_replaced() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        leave_dead_socket(&home.socket());
        assert!(home.has_socket());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        Client::greeted(&home.socket()).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn what_is_no_socket_of_ours_is_not_removed() {
    run(async {
        for replace in [false, true] {
            let home = Home::new();
            let setup = || {
                let setup = Setup::new(home.path(), Path::new("/nonexistent"));
                if replace { setup.arg("--replace") } else { setup }
            };
            std::fs::write(home.socket(), "precious").unwrap();
            let failure = setup().failure().await;
            assert_names(&failure, FailureKind::NotPermitted, &home.socket());
            assert_eq!(std::fs::read(home.socket()).unwrap(), b"precious");
            std::fs::remove_file(home.socket()).unwrap();

            let target = home.file("target");
            leave_dead_socket(&target);
            symlink(&target, home.socket()).unwrap();
            let failure = setup().failure().await;
            assert_names(&failure, FailureKind::NotPermitted, &home.socket());
            assert!(home.socket().is_symlink() && target.exists());
            std::fs::remove_file(home.socket()).unwrap();
            assert_untouched(&home);
        }
    });
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_socket_of_another_user_is_not_removed() {
    run(async {
        for replace in [false, true] {
            let home = Home::new();
            leave_dead_socket(&home.socket());
            chown(home.socket(), Some(NOBODY_ELSE), None).unwrap();
            let setup = Setup::new(home.path(), Path::new("/nonexistent"));
            let setup = if replace { setup.arg("--replace") } else { setup };
            let failure = setup.failure().await;
            assert_names(&failure, FailureKind::NotPermitted, &home.socket());
            assert!(failure.message.contains("4321"), "{failure:?}");
            assert!(home.has_socket());
            assert_untouched(&home);
        }
    });
}

#[test]
fn a_gpg_conf_that_cannot_be_edited_stops_before_the_agent_is_ended() {
    run(async {
        let home = Home::new();
        home.start_agent().await;
        std::fs::create_dir(home.file("gpg.conf")).unwrap();
        let failure = failure(home.path()).await;
        assert_names(&failure, FailureKind::NotPermitted, &home.file("gpg.conf"));
        Client::greeted(&home.socket()).await;
    });
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn only_the_user_and_root_are_let_in() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let program = reachable_program(&home);
        let gnupg = home.file("home");
        std::fs::create_dir(&gnupg).unwrap();
        chown(&gnupg, Some(NOBODY_ELSE), Some(NOBODY_ELSE)).unwrap();
        let (helper, _) = Setup::as_uid(NOBODY_ELSE, &program, &gnupg, &agent.path()).ready().await;
        let socket = gnupg.join("S.gpg-agent");
        let metadata = std::fs::metadata(&socket).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (NOBODY_ELSE, 0o600));
        // Even where the modes would let everybody in, the peer is checked.
        std::fs::set_permissions(&gnupg, std::fs::Permissions::from_mode(0o711)).unwrap();
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
        let path = socket.to_str().unwrap();
        for (uid, greeted) in [("4321", true), ("0", true), ("4322", false), ("65534", false)] {
            let reuid = format!("--reuid={uid}");
            let arguments =
                [&reuid, "--clear-groups", "gpg-connect-agent", "-S", path, "NOP", "/bye"];
            let output = home.run("setpriv", &arguments, b"").await;
            assert_eq!(output.stdout.starts_with(b"OK"), greeted, "{uid}: {output:?}");
            if !greeted {
                until("a line in the log", || helper.log().contains(&format!("uid {uid}"))).await;
            }
        }
        assert!(helper.stop().await.success());
    });
}

#[test]
fn an_agent_that_lies_about_its_keys_is_not_ended_while_the_home_has_some() {
    run(async {
        let home = Home::new();
        std::fs::create_dir(home.file("private-keys-v1.d")).unwrap();
        std::fs::write(home.file("private-keys-v1.d/AB.key"), "x").unwrap();
        // A panic of the agent itself would fail nobody.
        let heard = Rc::new(RefCell::new(Vec::new()));
        let lines = Rc::clone(&heard);
        let liar = ScriptedAgent::answering_beside(&home.socket(), move |line| {
            lines.borrow_mut().push(line.to_owned());
            Some(if line == "GETINFO restricted" { "ERR 1\n" } else { "OK\n" }.into())
        });
        std::fs::rename(liar.path(), home.socket()).unwrap();
        let failure = failure(home.path()).await;
        assert_names(&failure, FailureKind::InUse, &home.socket());
        let heard = heard.borrow();
        assert!(!heard.is_empty() && !heard.iter().any(|line| line == "KILLAGENT"), "{heard:?}");
        assert!(home.has_socket());
    });
}
