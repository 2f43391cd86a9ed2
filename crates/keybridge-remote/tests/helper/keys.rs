//! Public keys and ownertrust from the host.

use std::path::{Path, PathBuf};

use crate::lab::{self, Client, Home, Setup, agreeable, run};
use keybridge_lab::{program, write_program};
use keybridge_proto::report::KeyChanges;

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
        for bad in [&b"{"[..], b"KEYS 1\nabc", b"{\"ownertrust\":10}\nabc", &long] {
            helper.send_raw_keys(bad).await;
            let ready = helper.ready().await;
            assert_eq!(ready.warnings.len(), 1, "{ready:?}");
        }
        helper.send_raw_keys(b"{\"ownertrust\":4294967295}\nabc").await;
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
        assert!(helper.link.keys().write_all(b"{\"ownertrust\":0}\nhalf of an export").await);
        lab::until("the socket", || home.has_socket()).await;
        let mut client = Client::greeted(&home.socket()).await;
        assert_eq!(client.ask("NOP").await, ["OK\n"]);
        // A stop doesn't wait for the rest of the series.
        assert!(helper.stop().await.success());
    });
}

/// A gpg that sets a trap and does something else when it is to import keys. Gives the file with its
/// pid, which is there once the trap is set.
fn odd_gpg(home: &Home, trap: &str, import: &str) -> (PathBuf, PathBuf) {
    let (folder, pid) = (home.file("bin"), home.file("pid"));
    std::fs::create_dir(&folder).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--import*) trap {trap} TERM; echo $$ >{pid}.new; \
         mv {pid}.new {pid}; {import};; *) exec {gpg} \"$@\";; esac\n",
        pid = pid.display(),
        gpg = program("gpg").display()
    );
    write_program(&folder.join("gpg"), script);
    (folder, pid)
}

/// Stops a helper while its gpg is at work.
async fn stop_in_mid_import(home: &Home, bin: &Path, pid: &Path, head: &[u8]) {
    let agent = agreeable();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let helper =
        Setup::new(home.path(), &agent.path()).env("PATH", Some(path.as_ref())).spawn().await;
    helper.send_raw_keys(head).await;
    lab::until("gpg is at work", || pid.exists()).await;
    let number = std::fs::read_to_string(pid).unwrap();
    assert!(helper.stop().await.success());
    assert!(!Path::new("/proc").join(number.trim()).exists());
}

#[test]
fn gpg_is_asked_to_end_when_a_stop_comes_in_mid_import() {
    run(async {
        for head in [&b"{\"ownertrust\":0}\nexport"[..], b"{\"ownertrust\":5}\ntrust"] {
            let home = Home::new();
            let ended = home.file("ended");
            let trap = format!("'echo >{}; exit 0'", ended.display());
            let (bin, pid) = odd_gpg(&home, &trap, "while :; do sleep 0.05; done");
            stop_in_mid_import(&home, &bin, &pid, head).await;
            assert!(ended.exists());
        }
    });
}

#[test]
fn gpg_is_killed_when_it_does_not_end_by_itself() {
    run(async {
        let home = Home::new();
        let asked = home.file("asked");
        let trap = format!("'echo >{}'", asked.display());
        let (bin, pid) = odd_gpg(&home, &trap, "while :; do sleep 0.05; done");
        stop_in_mid_import(&home, &bin, &pid, b"{\"ownertrust\":0}\nexport").await;
        assert!(asked.exists(), "it was asked first");
    });
}
