//! The path of the socket is kept while the bridge serves.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::lab::{self, Client, Home, Setup, agreeable, run, until};
use keybridge_lab::until_async;
use tokio::net::UnixStream;

/// Waits until a client is served at the path again.
async fn served_again(home: &Home) {
    until_async("a client is served", async || {
        if UnixStream::connect(home.socket()).await.is_err() {
            return false;
        }
        let mut client = Client::connect(&home.socket()).await;
        client.line().await.contains("Pleased to meet you")
            && client.ask("GETINFO keybridge-test").await == ["OK\n"]
    })
    .await;
}

#[test]
fn an_unlinked_socket_is_bound_again() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut held = Client::greeted(&home.socket()).await;
        for _ in 0..3 {
            std::fs::remove_file(home.socket()).unwrap();
            served_again(&home).await;
        }
        // Those that were let in before go on.
        assert_eq!(held.ask("NOP").await, ["OK\n"]);
        let mode = std::fs::metadata(home.socket()).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert!(helper.stop().await.success());
        assert!(!home.has_socket());
    });
}

#[test]
fn a_socket_that_was_moved_away_is_bound_again() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        std::fs::rename(home.socket(), home.socket().with_extension("elsewhere")).unwrap();
        served_again(&home).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_stray_agent_is_ended() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let bound = std::fs::metadata(home.socket()).unwrap().ino();
        std::fs::remove_file(home.socket()).unwrap();
        // Whoever comes first, we or the agent, the path is ours in the end.
        // An agent that has lost the path lives on for a while, and would hold our pipes.
        home.run("sh", &["-c", "gpg-agent --daemon >/dev/null 2>&1"], b"").await;
        served_again(&home).await;
        assert_ne!(std::fs::metadata(home.socket()).unwrap().ino(), bound);
        assert!(helper.stop().await.success());
        assert!(!home.has_socket());
    });
}

#[test]
fn somebody_with_keys_is_left_alone_and_not_removed_at_the_end() {
    run(async {
        let home = Home::new();
        let agent = agreeable();
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let owner = lab::ScriptedAgent::answering_beside(&home.socket(), |line| {
            Some(match line {
                "GETINFO restricted" => "ERR 67109139 Unknown IPC command <GPG Agent>\n".into(),
                "KEYINFO --list" => "S KEYINFO AB D - - - P - - -\nOK\n".into(),
                _ => "OK\n".into(),
            })
        });
        std::fs::rename(owner.path(), home.socket()).unwrap();
        let inode = std::fs::metadata(home.socket()).unwrap().ino();
        until("a warning", || helper.log().contains("is a gpg-agent with secret keys")).await;
        assert!(helper.stop().await.success());
        assert_eq!(std::fs::metadata(home.socket()).unwrap().ino(), inode);
        assert!(!home.file("gpg.conf").exists());
    });
}

#[test]
fn a_file_at_the_path_is_left_alone_until_it_goes() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let precious = home.socket().with_extension("precious");
        std::fs::write(&precious, "precious").unwrap();
        std::fs::rename(precious, home.socket()).unwrap();
        until("a warning", || helper.log().contains("is not a socket")).await;
        assert_eq!(std::fs::read(home.socket()).unwrap(), b"precious");
        std::fs::remove_file(home.socket()).unwrap();
        served_again(&home).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_home_that_others_can_change_meanwhile_is_not_bound_in() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let set_mode = |mode| {
            std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode(0o777);
        std::fs::remove_file(home.socket()).unwrap();
        until("a warning", || helper.log().contains("can be written by others")).await;
        assert!(!home.has_socket());
        set_mode(0o700);
        served_again(&home).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn another_home_in_the_place_of_the_first_is_not_touched() {
    run(async {
        let (outer, agent) = (Home::new(), agreeable());
        let (home, moved) = (outer.file("home"), outer.file("moved"));
        let make = || {
            std::fs::create_dir(&home).unwrap();
            std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        };
        make();
        let setup = Setup::new(&home, &agent.path()).with_sockets_in(&home, outer.path());
        let (helper, _) = setup.ready().await;
        std::fs::rename(&home, &moved).unwrap();
        make();
        let conf = std::fs::read(moved.join("gpg.conf")).unwrap();
        std::fs::write(home.join("gpg.conf"), &conf).unwrap();
        until("a warning", || helper.log().contains("is not the folder that it was")).await;
        let log = helper.log_handle();
        assert!(!helper.stop().await.success());
        until("an error", || log.borrow().contains("could not be undone")).await;
        assert_eq!(std::fs::read(home.join("gpg.conf")).unwrap(), conf);
        assert!(!home.join("S.gpg-agent").exists());
    });
}
