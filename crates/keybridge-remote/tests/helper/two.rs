//! Two bridges for one home: one of them has it.

use std::os::unix::fs::{MetadataExt, symlink};

use crate::lab::{self, Client, Home, News, Setup, agreeable, run};
use keybridge_proto::report::FailureKind;
use rustix::process::Signal;

#[test]
fn the_second_is_refused_and_changes_nothing_even_where_the_socket_is_lost() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (first, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let conf = std::fs::read(home.file("gpg.conf")).unwrap();
        // Something that can't be taken for a bridge: only the lock tells.
        std::fs::remove_file(home.socket()).unwrap();
        let refused = Setup::new(home.path(), &agent.path()).failure().await;
        assert_eq!(refused.kind, FailureKind::InUse, "{refused:?}");
        assert!(refused.message.contains(&format!("(pid {})", first.pid())), "{refused:?}");
        assert!(refused.hints.iter().any(|hint| hint.contains("--replace")), "{refused:?}");
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), conf);
        Client::greeted(&home.socket()).await;
        assert!(first.stop().await.success());
        assert!(!home.file("gpg.conf").exists());
    });
}

#[test]
fn the_first_ends_when_it_is_replaced_and_undoes_nothing_of_the_second() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut first, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let (second, _) = Setup::new(home.path(), &agent.path()).arg("--replace").ready().await;
        assert!(first.child.wait().await.unwrap().success());
        assert!(matches!(first.news().await, News::Ended(_)));
        assert!(home.file("gpg.conf").exists());
        let written = std::fs::read_to_string(home.file(".keybridge-lock")).unwrap();
        assert!(written.starts_with(&format!("{}\n", second.pid())), "{written}");
        let mut client = Client::greeted(&home.socket()).await;
        assert_eq!(client.ask("NOP").await, ["OK\n"]);
        assert!(second.stop().await.success());
        assert!(!home.has_socket());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn one_that_does_not_end_keeps_the_home() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (first, _) = Setup::new(home.path(), &agent.path()).ready().await;
        first.signal(Signal::STOP);
        let failure = Setup::new(home.path(), &agent.path()).arg("--replace").failure().await;
        assert_eq!(failure.kind, FailureKind::InUse, "{failure:?}");
        assert!(failure.message.contains("doesn't end"), "{failure:?}");
        assert!(home.file("gpg.conf").exists() && home.has_socket());
        first.signal(Signal::CONT);
        drop(first);
    });
}

#[test]
fn a_start_that_fails_undoes_only_what_it_did() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (first, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let conf = std::fs::read(home.file("gpg.conf")).unwrap();
        first.kill().await;
        std::fs::remove_file(home.socket()).unwrap();
        std::fs::write(home.socket(), "precious").unwrap();
        Setup::new(home.path(), &agent.path()).failure().await;
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), conf);
    });
}

#[test]
fn many_at_once_leave_one() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let mut helpers = Vec::new();
        for _ in 0..6 {
            let helper = Setup::new(home.path(), &agent.path()).arg("--replace").spawn().await;
            helper.send_keys(b"", b"").await;
            helpers.push(helper);
        }
        // Each takes the place of the one that has it; the last to get it stays.
        let alive = |helpers: &mut Vec<lab::Helper>| {
            helpers.retain_mut(|helper| helper.child.try_wait().unwrap().is_none());
            helpers.len()
        };
        lab::until("one of them is left", || alive(&mut helpers) <= 1).await;
        let mut last = helpers.pop().unwrap();
        last.ready().await;
        Client::greeted(&home.socket()).await;
        assert!(home.file("gpg.conf").exists());
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn the_lock_of_a_killed_one_is_taken_and_a_link_is_not_followed() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (first, _) = Setup::new(home.path(), &agent.path()).ready().await;
        assert_eq!(std::fs::metadata(home.file(".keybridge-lock")).unwrap().mode() & 0o7777, 0o600);
        first.kill().await;
        assert!(home.file(".keybridge-lock").exists());
        let (second, _) = Setup::new(home.path(), &agent.path()).ready().await;
        assert!(second.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);

        std::fs::write(home.file("precious"), "precious").unwrap();
        symlink(home.file("precious"), home.file(".keybridge-lock")).unwrap();
        let failure = Setup::new(home.path(), &agent.path()).failure().await;
        assert!(failure.message.contains(".keybridge-lock"), "{failure:?}");
        assert_eq!(std::fs::read(home.file("precious")).unwrap(), b"precious");
    });
}
