//! What would change the host's ssh-agent fails in the container, and changes nothing at home.

use crate::lab::{Image, text};
use crate::ssh_lab::{SshLab, User, complaint};
use keybridge_lab::SshHome;

/// ssh-add asks by this program, which types something.
const ASKPASS: &[u8] = b"#!/bin/sh\necho planted\n";

/// A key, a certificate for it, and a program that answers whatever is asked, in the container.
fn set_up(lab: &SshLab) {
    lab.container().put_program("/usr/local/bin/askpass", ASKPASS);
    lab.sh("ssh-keygen -q -t ed25519 -N '' -C new -f /tmp/new");
    lab.write("/tmp/key.pub", lab.public_key("key"));
}

fn ssh_add(lab: &SshLab, arguments: &str) -> std::process::Output {
    let asks = "SSH_ASKPASS=/usr/local/bin/askpass SSH_ASKPASS_REQUIRE=force";
    lab.try_run(&format!("{asks} ssh-add {arguments}"))
}

#[track_caller]
fn nothing_changes(image: Image, user: User) {
    let lab = SshLab::new(image, user);
    lab.up(&["--lanes", "ssh", "--log", "debug"]);
    set_up(&lab);
    let keys = lab.home.keys();
    for (arguments, request) in [
        ("/tmp/new", "ADD_IDENTITY"),
        ("-c /tmp/new", "ADD_ID_CONSTRAINED"),
        ("-t 60 /tmp/new", "ADD_ID_CONSTRAINED"),
        ("-d /tmp/key.pub", "REMOVE_IDENTITY"),
        ("-D", "REMOVE_ALL_IDENTITIES"),
        ("-x", "LOCK"),
        ("-X", "UNLOCK"),
        ("-s /usr/lib/nothing.so", "ADD_SMARTCARD_KEY"),
        ("-e /usr/lib/nothing.so", "REMOVE_SMARTCARD_KEY"),
    ] {
        let said = complaint(&ssh_add(&lab, arguments));
        assert!(!said.is_empty(), "ssh-add {arguments} says nothing");
        // A locked agent would list nothing.
        assert_eq!(lab.home.keys(), keys, "ssh-add {arguments}: {said}");
        assert_eq!(lab.run(["ssh-add", "-l"]), keys, "ssh-add {arguments}: {said}");
        // It was the bridge that refused.
        let log = lab.docker.log();
        let is_refused =
            |line: &str| line.contains(request) && line.contains("is refused with FAILURE");
        assert!(log.lines().any(is_refused), "{request}: {log}");
        assert!(!log.contains("planted"), "what was typed is in the log: {log}");
    }
    let said = complaint(&ssh_add(&lab, "/tmp/new"));
    assert!(said.contains("agent refused operation"), "{said}");
}

#[test]
fn in_a_bookworm_container_as_root() {
    nothing_changes(Image::Bookworm, User::Root);
}

#[test]
fn in_a_trixie_container_as_a_normal_user() {
    nothing_changes(Image::Trixie, User::Dev);
}

#[test]
fn with_the_users_word_keys_can_be_added_and_the_agent_locked() {
    let lab = SshLab::with(Image::Trixie, &[], User::Dev, SshHome::with_key());
    lab.up(&["--lanes", "ssh", "--allow-ssh-changes"]);
    set_up(&lab);
    let added = ssh_add(&lab, "/tmp/new");
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert_eq!(lab.home.keys().lines().count(), 2);
    assert!(ssh_add(&lab, "-x").status.success());
    assert_eq!(lab.home.keys(), "The agent has no identities.\n");
    assert!(ssh_add(&lab, "-X").status.success());
    assert_eq!(lab.home.keys().lines().count(), 2);
}
