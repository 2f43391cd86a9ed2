//! The ssh lane when something goes wrong: the link, the agent, the socket, the helper, the client.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::lab::{
    Client, FAILURE, NO_KEYS, ScriptedAgent, Setup, SshClient, SshHome, User, agreeable, run, until,
};
use keybridge_proto::ssh::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const TOKEN: &str = "0123456789abcdef";

/// Longer than any test takes.
const LONG: u64 = 600;

/// A request that an agent of the tests doesn't answer.
const SILENT: [u8; 6] = [0, 0, 0, 2, 13, 1];

/// An agent without keys that answers when it is asked for them, and to nothing else.
fn brief() -> ScriptedAgent {
    ScriptedAgent::serving(|mut socket| async move {
        let mut buffer = vec![0; 1024];
        while let Ok(count @ 1..) = socket.read(&mut buffer).await {
            for _ in 0..count / 5 {
                if buffer[..5] == Request::LIST && socket.write_all(&NO_KEYS).await.is_err() {
                    return;
                }
            }
        }
    })
}

fn of_bridge(user: &User, lanes: &str, gpg: &ScriptedAgent, ssh: &ScriptedAgent) -> Setup {
    user.helper_with(lanes, &gpg.path(), &ssh.path()).of_bridge(TOKEN).outliving(LONG)
}

#[test]
fn every_request_is_refused_while_the_link_is_down() {
    run(async {
        let (user, agent) = (User::new(), brief());
        let setup = user.helper("ssh", &agent.path()).outliving(LONG);
        let (helper, _) = setup.ready().await;
        let (mut idle, mut waiting) =
            (SshClient::connect(&user.socket()).await, SshClient::connect(&user.socket()).await);
        let mut halfway = SshClient::connect(&user.socket()).await;
        assert_eq!(idle.ask(&Request::LIST).await, NO_KEYS);
        assert_eq!(waiting.ask(&Request::LIST).await, NO_KEYS);
        waiting.send(&SILENT).await;
        halfway.send(&SILENT[..5]).await;
        until("streams", || helper.log().matches("to=Relaying").count() == 3).await;
        helper.cut();
        assert_eq!(waiting.answer().await, FAILURE);
        // Those who were there stay connected, and are refused too.
        waiting.is_refused().await;
        idle.is_refused().await;
        halfway.send(&SILENT[5..]).await;
        assert_eq!(halfway.answer().await, FAILURE);
        for _ in 0..50 {
            SshClient::connect(&user.socket()).await.is_refused().await;
        }
        let socket = user.socket();
        let listed = user.run_with("ssh-add", &["-l"], &[("SSH_AUTH_SOCK", &socket)]).await;
        let words = String::from_utf8(listed.stderr).unwrap();
        assert!(words.contains("agent refused operation"), "{words}");
        helper.kill().await;
    });
}

#[test]
fn an_agent_that_ends_is_the_end_for_its_clients() {
    run(async {
        let user = User::new();
        let agent = SshHome::started();
        let (helper, _) = user.helper("ssh", &agent.socket()).ready().await;
        let mut client = SshClient::connect(&user.socket()).await;
        assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
        let mut waiting = SshClient::connect(&user.socket()).await;
        // A part of a request, so that the agent waits.
        waiting.send(&SILENT[..5]).await;
        assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
        agent.kill();
        assert_eq!(waiting.answer().await, b"");
        assert_eq!(client.answer().await, b"");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn requests_that_a_closed_stream_leaves_get_their_failures() {
    run(async {
        let user = User::new();
        // Answers the first request, takes two more, and hangs up.
        let agent = ScriptedAgent::serving(|mut socket| async move {
            let mut requests = [0; 15];
            socket.read_exact(&mut requests[..5]).await.unwrap();
            socket.write_all(&NO_KEYS).await.unwrap();
            socket.read_exact(&mut requests[..10]).await.unwrap();
        });
        let (helper, _) = user.helper("ssh", &agent.path()).ready().await;
        let mut client = SshClient::connect(&user.socket()).await;
        client.send(&Request::LIST.repeat(3)).await;
        assert_eq!(client.answer().await, NO_KEYS);
        assert_eq!(client.answer().await, FAILURE);
        assert_eq!(client.answer().await, FAILURE);
        assert_eq!(client.answer().await, b"");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn bytes_pass_unchanged_on_one_stream_for_each_client() {
    run(async {
        let user = User::new();
        let (seen, connections) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let agent = {
            let (seen, connections) = (Rc::clone(&seen), Rc::clone(&connections));
            ScriptedAgent::serving(move |mut socket| {
                let (seen, connections) = (Rc::clone(&seen), Rc::clone(&connections));
                async move {
                    connections.set(connections.get() + 1);
                    let mut buffer = vec![0; 70_000];
                    while let Ok(count @ 1..) = socket.read(&mut buffer).await {
                        seen.borrow_mut().extend_from_slice(&buffer[..count]);
                        socket.write_all(&buffer[..count]).await.unwrap();
                    }
                }
            })
        };
        let (helper, _) = user.helper("ssh", &agent.path()).ready().await;
        let large: Vec<u8> = [&262_144_u32.to_be_bytes()[..], &[27], &vec![0xa5; 262_143]].concat();
        let mut sent = Vec::new();
        let mut client = SshClient::connect(&user.socket()).await;
        for request in [&large[..], &Request::LIST, &SILENT, &large] {
            assert_eq!(client.ask(request).await, request);
            sent.extend_from_slice(request);
        }
        assert!(*seen.borrow() == sent);
        assert_eq!(connections.get(), 1);
        // The end of a client's input is not its end.
        client.send(&Request::LIST).await;
        client.0.shutdown().await.unwrap();
        assert_eq!(client.answer().await, Request::LIST);
        assert_eq!(client.answer().await, b"");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn one_that_waits_for_a_person_delays_nobody() {
    run(async {
        let (user, agent) = (User::new(), brief());
        let (helper, _) = user.helper("ssh", &agent.path()).ready().await;
        let mut waiting = SshClient::connect(&user.socket()).await;
        waiting.send(&SILENT).await;
        for _ in 0..200 {
            let mut client = SshClient::connect(&user.socket()).await;
            assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
        }
        // Nor does one that sends without end and reads nothing.
        let mut deaf = SshClient::connect(&user.socket()).await;
        let flood = Request::LIST.repeat(1000);
        while timeout(Duration::from_millis(200), deaf.0.write_all(&flood)).await.is_ok() {}
        let mut client = SshClient::connect(&user.socket()).await;
        assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn both_lanes_share_the_places_of_clients() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        let setup = user.helper_with("gpg,ssh", &gpg.path(), &ssh.path()).arg("--max-sessions=2");
        let (helper, ready) = setup.ready().await;
        let gpg_socket = PathBuf::from(ready.sockets.gpg.unwrap());
        let first = Client::greeted(&gpg_socket).await;
        let mut second = SshClient::connect(&user.socket()).await;
        assert_eq!(second.ask(&Request::LIST).await, NO_KEYS);
        assert!(Client::turned_away(&gpg_socket).await.starts_with("ERR 67109047 "));
        let mut third = SshClient::connect(&user.socket()).await;
        assert_eq!(third.answer().await, b"");
        drop(first);
        until("a place is free", || helper.log().matches("ended").count() == 1).await;
        let mut third = SshClient::connect(&user.socket()).await;
        assert_eq!(third.ask(&Request::LIST).await, NO_KEYS);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn the_socket_is_bound_again_with_a_link_or_without() {
    run(async {
        let (user, agent) = (User::new(), brief());
        let (helper, _) = user.helper("ssh", &agent.path()).outliving(LONG).ready().await;
        let mut held = SshClient::connect(&user.socket()).await;
        for _ in 0..2 {
            std::fs::remove_file(user.socket()).unwrap();
            until("the socket is back", || user.has_socket()).await;
            assert_eq!(std::fs::metadata(user.socket()).unwrap().mode() & 0o7777, 0o600);
            let mut client = SshClient::connect(&user.socket()).await;
            assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
        }
        assert_eq!(held.ask(&Request::LIST).await, NO_KEYS);
        // Somebody else's is left alone, and taken again when it is gone.
        let theirs = agreeable();
        std::fs::rename(theirs.path(), user.socket()).unwrap();
        until("a warning", || helper.log().contains("answers there")).await;
        std::fs::remove_file(user.socket()).unwrap();
        until("the socket is back", || user.has_socket()).await;
        helper.cut();
        held.is_refused().await;
        std::fs::remove_file(user.socket()).unwrap();
        until("the socket is back", || user.has_socket()).await;
        SshClient::connect(&user.socket()).await.is_refused().await;
        helper.kill().await;
    });
}

#[test]
fn a_newer_helper_takes_both_lanes_over_and_later_gives_one_up() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        user.make_folder();
        std::fs::write(user.file(".ssh/config"), "# mine").unwrap();
        let (mut older, ready) = of_bridge(&user, "gpg,ssh", &gpg, &ssh).ready().await;
        let gpg_socket = PathBuf::from(ready.sockets.gpg.unwrap());
        for round in 0..4 {
            let mut waiting = SshClient::connect(&user.socket()).await;
            assert_eq!(waiting.ask(&Request::LIST).await, NO_KEYS);
            waiting.send(&SILENT).await;
            if round % 2 == 0 {
                older.cut();
            }
            let (newer, _) = of_bridge(&user, "gpg,ssh", &gpg, &ssh).ready().await;
            assert!(older.child.wait().await.unwrap().success());
            assert_eq!(waiting.answer().await, FAILURE);
            let mut client = SshClient::connect(&user.socket()).await;
            assert_eq!(client.ask(&Request::LIST).await, NO_KEYS);
            Client::greeted(&gpg_socket).await;
            older = newer;
        }

        let (newer, ready) = of_bridge(&user, "gpg", &gpg, &ssh).ready().await;
        assert!(older.child.wait().await.unwrap().success());
        assert_eq!((ready.sockets.ssh, user.has_socket()), (None, false));
        assert_eq!(std::fs::read(user.file(".ssh/config")).unwrap(), b"# mine");
        assert_eq!(std::fs::read_dir(user.file(".ssh")).unwrap().count(), 1);
        Client::greeted(&gpg_socket).await;
        let (last, ready) = of_bridge(&user, "ssh", &gpg, &ssh).ready().await;
        assert!(ready.sockets.ssh.is_some() && !gpg_socket.exists());
        drop(newer);
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(user.file(".ssh")).unwrap().count(), 1);
        assert!(!user.file(".gnupg").exists());
    });
}

#[test]
fn a_newer_helper_that_fails_on_one_lane_undoes_the_other_one_too() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        user.make_folder();
        std::fs::write(user.file(".ssh/config"), "# mine").unwrap();
        let (mut older, _) = of_bridge(&user, "gpg,ssh", &gpg, &ssh).ready().await;
        std::fs::remove_file(user.file(".gnupg/gpg.conf")).unwrap();
        std::fs::create_dir(user.file(".gnupg/gpg.conf")).unwrap();
        of_bridge(&user, "gpg,ssh", &gpg, &ssh).failure().await;
        assert!(older.child.wait().await.unwrap().success());
        assert!(!user.has_socket());
        assert_eq!(std::fs::read(user.file(".ssh/config")).unwrap(), b"# mine");
        assert_eq!(std::fs::read_dir(user.file(".ssh")).unwrap().count(), 1);
    });
}

#[test]
fn the_folder_that_was_made_goes_with_the_last_helper() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        let (older, _) = of_bridge(&user, "ssh", &gpg, &ssh).ready().await;
        let (newer, _) = of_bridge(&user, "ssh", &gpg, &ssh).ready().await;
        assert_eq!(
            std::fs::metadata(user.file(".ssh")).unwrap().permissions().mode() & 0o777,
            0o700
        );
        newer.kill().await;
        let (last, _) = of_bridge(&user, "ssh", &gpg, &ssh).ready().await;
        assert!(last.stop().await.success());
        assert!(user.content().is_empty());
        drop(older);
    });
}

#[test]
fn undo_takes_away_what_a_killed_helper_left_of_both_lanes() {
    run(async {
        for (made, named) in [(false, false), (true, false), (true, true)] {
            let (user, gpg, ssh) = (User::new(), agreeable(), brief());
            if !made {
                user.make_folder();
                std::fs::write(user.file(".ssh/config"), "# mine").unwrap();
            }
            let before = user.content();
            let run = user.elsewhere("run");
            std::fs::create_dir(&run).unwrap();
            let mut setup = of_bridge(&user, "gpg,ssh", &gpg, &ssh);
            if named {
                setup = setup.env("SSH_AUTH_SOCK", Some(run.join("agent").as_os_str()));
            }
            let (helper, ready) = setup.ready().await;
            let socket = PathBuf::from(ready.sockets.ssh.unwrap());
            assert_eq!(socket.starts_with(&run), named);
            let at_work = format!("a helper (pid {}) is at work in ", helper.pid());
            let said = user.undo(&[]).await;
            assert_eq!(said.matches(&at_work).count(), 2, "{said}");
            helper.kill().await;
            assert!(socket.exists());
            let said = user.undo(&[]).await;
            assert_eq!(said.matches("nothing of a helper is left in ").count(), 2, "{said}");
            assert_eq!(user.content(), before);
            assert!(!socket.exists());
        }
    });
}

#[test]
fn undo_ends_a_helper_of_its_own_bridge_on_both_lanes() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        let (mut helper, _) = of_bridge(&user, "gpg,ssh", &gpg, &ssh).ready().await;
        helper.cut();
        user.undo(&["--bridge", TOKEN]).await;
        assert!(helper.child.wait().await.unwrap().success());
        assert!(user.content().is_empty());
    });
}

#[test]
fn undo_passes_over_a_folder_that_no_helper_could_use() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), brief());
        user.make_folder();
        let set_mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(user.file(".ssh"), mode).unwrap();
        };
        set_mode(0o777);
        let said = user.undo(&[]).await;
        assert!(said.contains("can be written by others"), "{said}");
        // One that became so under a helper is another matter.
        set_mode(0o700);
        let (helper, _) = of_bridge(&user, "ssh", &gpg, &ssh).ready().await;
        helper.kill().await;
        set_mode(0o777);
        let undone = user.run(crate::lab::program(), &["undo"]).await;
        assert!(!undone.status.success(), "{undone:?}");
        set_mode(0o700);
        user.undo(&[]).await;
        assert_eq!(std::fs::read_dir(user.file(".ssh")).unwrap().count(), 0);
    });
}
