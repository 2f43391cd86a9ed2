//! `keybridge-remote undo`, after helpers that were killed and beside those that live.

use std::process::Output;

use crate::lab::{Client, Home, Setup, agreeable, run};
use keybridge_lab::leave_dead_socket;
use keybridge_proto::report::{Failure, FailureKind};

const CONF: &[u8] = b"# mine\r\nagent-program /usr/bin/gpg-agent\r\nno line end";

const TOKEN: &str = "0123456789abcdef";

/// What `undo` says for a home.
async fn undo(home: &Home) -> String {
    let output = home.run(crate::lab::program(), &["undo"], b"").await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `undo` comes to where there is no gpg.
async fn undo_without_gpg(home: &Home) -> Output {
    let mut command = home.command(crate::lab::program());
    command.arg("undo").env("PATH", "/nonexistent");
    keybridge_lab::output_beside(command, b"").await
}

/// What `undo` says of a home that a helper works in.
async fn in_use(home: &Home) -> String {
    let said = undo(home).await;
    let lines = said.lines().map(|line| Failure::decode(line.as_bytes()));
    let mut in_use = lines.filter(|failure| failure.kind == FailureKind::InUse);
    in_use.next().unwrap_or_else(|| panic!("{said}")).message
}

#[test]
fn what_a_killed_helper_left_is_undone_byte_for_byte() {
    run(async {
        for original in [Some(CONF), None] {
            let (home, agent) = (Home::new(), agreeable());
            if let Some(original) = original {
                std::fs::write(home.file("gpg.conf"), original).unwrap();
            }
            let setup = Setup::new(home.path(), &agent.path()).of_bridge(TOKEN);
            let (helper, _) = setup.ready().await;
            helper.kill().await;
            assert!(home.has_socket());
            for _ in 0..2 {
                assert!(undo(&home).await.starts_with("nothing of a helper is left in "));
                assert_eq!(std::fs::read(home.file("gpg.conf")).ok().as_deref(), original);
                let rest = std::fs::read_dir(home.path()).unwrap().count();
                assert_eq!(rest, usize::from(original.is_some()));
            }
        }
    });
}

#[test]
fn a_helper_that_lives_is_left_alone_and_nothing_called_undone_with_its_link_or_without() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let setup = Setup::new(home.path(), &agent.path()).of_bridge(TOKEN).outliving(600);
        let (helper, _) = setup.ready().await;
        let conf = std::fs::read(home.file("gpg.conf")).unwrap();
        let at_work = format!("a helper (pid {}) is at work in ", helper.pid());
        let said = in_use(&home).await;
        assert!(said.starts_with(&at_work), "{said}");
        Client::greeted(&home.socket()).await;
        helper.cut();
        Client::turned_away(&home.socket()).await;
        let said = in_use(&home).await;
        assert!(said.starts_with(&at_work), "{said}");
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), conf);
        Client::turned_away(&home.socket()).await;
        helper.kill().await;
    });
}

#[test]
fn what_a_helper_left_is_not_called_undone_where_gpg_has_gone_since() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let setup = Setup::new(home.path(), &agent.path()).of_bridge(TOKEN);
        let (helper, _) = setup.ready().await;
        helper.kill().await;
        let refused = undo_without_gpg(&home).await;
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("no gpg on the PATH"), "{said}");
        assert!(undo(&home).await.starts_with("nothing of a helper is left in "));
        // Nothing is left now.
        assert!(undo_without_gpg(&home).await.status.success());
    });
}

#[test]
fn what_no_helper_made_stays() {
    run(async {
        let home = Home::new();
        std::fs::write(home.file("gpg.conf"), CONF).unwrap();
        leave_dead_socket(&home.socket());
        let before = std::fs::read_dir(home.path()).unwrap().count();
        undo(&home).await;
        assert!(home.has_socket());
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), CONF);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), before);

        std::fs::remove_dir_all(home.path()).unwrap();
        assert!(undo(&home).await.contains("doesn't exist"));
        assert!(!home.path().exists());
    });
}
