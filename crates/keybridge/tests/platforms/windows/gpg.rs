//! The gpg lane: gpg-agent.exe at home, gpg in a target of Linux.

use super::{Port, Target, Wine};
use crate::lab::{Container, Image};

#[test]
fn a_signature_verifies_and_the_next_one_after_a_new_start_of_the_agent() {
    let (wine, target) = (Wine::with_key(), Target::new());
    let port = target.port();
    let address = format!("exec:relay.exe {}", port.number());
    let shown = wine.keybridge_ok(["up", &address]);
    assert!(shown.contains("gpg-agent 2.2.40 answers"), "{shown}");
    let fingerprint = wine.fingerprint();
    assert_eq!(target.signs(), fingerprint);

    let before = wine.socket_file();
    wine.kill_agent();
    wine.ok("gpgconf.exe", ["--launch", "gpg-agent"]);
    assert_ne!(wine.socket_file(), before, "a new port and a new nonce");
    assert_eq!(target.signs(), fingerprint);

    wine.keybridge_ok(["down", &address]);
    assert_eq!(target.sockets(), "");
    assert!(!target.has(".gnupg/gpg.conf"));
}

/// The other helper is in the program too.
#[test]
fn a_commit_is_signed_in_a_container_for_arm64() {
    let (wine, container) = (Wine::with_key(), Container::start(Image::Arm64, &[]));
    let before = ["docker", "exec", "-i", &container.name];
    let port = Port::to_programs(before.map(str::to_owned).into());
    let address = format!("exec:relay.exe {}", port.number());
    wine.keybridge_ok(["up", &address]);
    let committed = container.sh(
        None,
        "cd \"$(mktemp -d)\"
        git init --quiet .
        git config user.name Lab
        git config user.email lab@keybridge.example
        git commit --quiet --allow-empty -S -m signed
        git log -1 --format='%G? %GP'",
    );
    // Ownertrust came with the key.
    assert_eq!(committed, format!("G {}\n", wine.fingerprint()));
    wine.keybridge_ok(["down", &address]);
}
