//! The public keys of a target, and a signature with one of them.

use keybridge_proto::inspection::KeyStatus;

use super::{NO_KEY, inspect, the_key, tree};
use crate::lab::{Home, Setup, run};

async fn export(from: &Home, to: &Home) {
    let key = from.gpg(&["--batch", "--export"]).await.stdout;
    let imported = to.gpg_with_input(&["--batch", "--import"], &key).await;
    assert!(imported.status.success(), "{imported:?}");
}

#[test]
fn a_public_key_is_shown_as_it_is_in_this_keyring() {
    run(async {
        let (owner, home) = (Home::new(), Home::new());
        let old = ["--batch", "--faked-system-time", "20200101T000000", "--passphrase", ""];
        let arguments = ["--quick-gen-key", "Old <old@example.org>", "ed25519", "sign", "1y"];
        let made = owner.gpg(&[&old[..], &arguments[..]].concat()).await;
        assert!(made.status.success(), "{made:?}");
        let key = owner.fingerprint();
        export(&owner, &home).await;
        std::fs::remove_file(home.file("trustdb.gpg")).ok();
        let before = tree(home.path());
        let found = inspect(&home, &["--key", &key, "--key", NO_KEY]).await;
        assert_eq!(tree(home.path()), before);
        assert_eq!(found.keys[1].status, KeyStatus::Missing);
        let stale = the_key(&found).clone();
        assert_eq!(stale.ownertrust, None);
        assert_eq!((stale.subkeys.len(), stale.user_ids.len()), (0, 1));
        assert!(stale.expires.unwrap() < 1_700_000_000);

        // What the owner changes shows only after it is imported again.
        let run_ok = async |arguments: &[&str]| {
            let words = [&["--batch", "--passphrase", ""], arguments].concat();
            let done = owner.gpg(&words).await;
            assert!(done.status.success(), "{done:?}");
        };
        run_ok(&["--quick-set-expire", &key, "2y"]).await;
        run_ok(&["--quick-add-key", &key, "cv25519", "encr", "1y"]).await;
        run_ok(&["--quick-add-uid", &key, "New <new@example.org>"]).await;
        assert_eq!(*the_key(&inspect(&home, &["--key", &key]).await), stale);
        export(&owner, &home).await;
        let trust = format!("{key}:5:\n");
        home.gpg_with_input(&["--batch", "--import-ownertrust"], trust.as_bytes()).await;
        let found = inspect(&home, &["--key", &key]).await;
        let current = the_key(&found);
        assert_eq!(current.ownertrust, Some(5));
        assert!(current.expires > stale.expires);
        assert_eq!((current.subkeys.len(), current.user_ids.len()), (1, 2));
        assert!(current.user_ids.contains(&stale.user_ids[0]));
        assert_eq!(current.subkeys[0].fingerprint.len(), 40);
    });
}

#[test]
fn a_signature_goes_through_a_helper() {
    run(async {
        let (owner, home) = (Home::with_key("Lent <lent@example.org>").await, Home::new());
        owner.start_agent().await;
        export(&owner, &home).await;
        home.run("gpgconf", &["--kill", "all"], b"").await;
        let (helper, _) = Setup::new(home.path(), &owner.extra_socket()).ready().await;
        let before = tree(home.path());
        let key = owner.fingerprint();
        let found = inspect(&home, &["--sign", &key]).await;
        assert_eq!(tree(home.path()), before);
        let signature = found.signature.unwrap();
        assert!(signature.result.is_ok(), "{signature:?}");
        let found = inspect(&home, &["--sign", NO_KEY]).await;
        let reason = found.signature.unwrap().result.unwrap_err();
        assert!(reason.contains("No secret key") && !reason.contains('\n'), "{reason}");
        assert!(helper.stop().await.success());
    });
}
