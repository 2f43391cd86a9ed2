//! Public keys and ownertrust from the host.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod lab;

use keybridge_proto::report::KeyChanges;
use lab::{Client, Home, Setup, agreeable, run};

#[test]
fn keys_are_new_then_unchanged_then_updated() {
    run(async {
        let host = Home::with_key("Alice <alice@example.org>").await;
        let (home, agent) = (Home::new(), agreeable());
        let mut helper = Setup::new(home.path(), &agent.path()).spawn().await;
        let export = host.gpg(&["--export"]).await.stdout;
        let trust = host.gpg(&["--export-ownertrust"]).await.stdout;

        helper.send_keys(&trust, &export).await;
        let ready = helper.ready().await;
        let expected = KeyChanges { new: 1, updated: 0, unchanged: 0, ownertrust: 1 };
        assert_eq!(ready.keys, Some(expected), "{ready:?}");
        let listed = home.gpg(&["--with-colons", "--list-keys"]).await;
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("uid:u:"), "{listed}");

        helper.send_keys(&trust, &export).await;
        let expected = KeyChanges { new: 0, updated: 0, unchanged: 1, ownertrust: 0 };
        assert_eq!(helper.ready().await.keys, Some(expected));

        let add =
            ["--batch", "--passphrase", "", "--quick-add-uid", "alice", "Al <al@example.org>"];
        assert!(host.gpg(&add).await.status.success());
        let export = host.gpg(&["--export"]).await.stdout;
        helper.send_keys(b"", &export).await;
        let expected = KeyChanges { new: 0, updated: 1, unchanged: 0, ownertrust: 0 };
        assert_eq!(helper.ready().await.keys, Some(expected));
        assert!(helper.stop().await.success());
    });
}

#[test]
fn no_keys_are_no_import() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut helper, ready) = Setup::new(home.path(), &agent.path()).ready().await;
        assert_eq!(ready.keys, Some(KeyChanges::default()));
        assert_eq!(ready.warnings, Vec::<String>::new());
        assert!(!home.file("pubring.kbx").exists());
        helper.send_raw_keys(b"").await;
        let ready = helper.ready().await;
        assert_eq!((ready.keys, ready.warnings.len()), (None, 0));
        assert!(helper.stop().await.success());
    });
}

#[test]
fn what_cannot_be_imported_is_a_warning() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let mut helper = Setup::new(home.path(), &agent.path()).spawn().await;
        // More than the link, the pipe and gpg hold together.
        helper.send_keys(b"", &vec![b'x'; 3 << 20]).await;
        let ready = helper.ready().await;
        assert_eq!(ready.keys, Some(KeyChanges::default()));
        assert_eq!(ready.warnings.len(), 1, "{ready:?}");
        helper.send_keys(b"no ownertrust\n", b"").await;
        assert_eq!(helper.ready().await.warnings.len(), 1);
        let long = vec![b'9'; 1 << 20];
        for bad in [&b"KEYS"[..], b"KEYS x\nabc", b"KEYS 10\nabc", &long] {
            helper.send_raw_keys(bad).await;
            let ready = helper.ready().await;
            assert_eq!(ready.warnings.len(), 1, "{ready:?}");
        }
        helper.send_raw_keys(b"KEYS 4294967295\nabc").await;
        assert_eq!(helper.ready().await.warnings.len(), 1);
        // The bridge goes on.
        Client::greeted(&home.socket()).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn clients_are_served_while_keys_are_imported() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let helper = Setup::new(home.path(), &agent.path()).spawn().await;
        assert!(helper.link.keys().write_all(b"KEYS 0\nhalf of an export").await);
        lab::until("the socket", || home.has_socket()).await;
        let mut client = Client::greeted(&home.socket()).await;
        assert_eq!(client.ask("NOP").await, ["OK\n"]);
        // A stop doesn't wait for the rest of the series.
        assert!(helper.stop().await.success());
    });
}
