//! One command, and every tool in a fresh container signs and decrypts with the keys of the host.

use crate::any_engine::signs::{self, assert_undone, assert_works, fresh_containers};
use crate::lab::{Client, Docker, Image, Program, feed, gpg_version, static_helper, text};

#[track_caller]
fn fresh(image: Image, start: &[&str], up: &[&str], user: Option<&str>, home: &str) {
    signs::fresh(Program::Docker, image, start, up, user, home);
}

fresh_containers!();

#[test]
fn the_user_that_the_container_runs_as() {
    fresh(Image::Bookworm, &["--user", "dev"], &[], None, "/home/dev");
}

#[test]
fn a_user_by_its_number() {
    fresh(Image::Bookworm, &[], &["--user", "1000:1000"], Some("dev"), "/home/dev");
}

#[test]
fn a_read_only_root_with_temporary_folders() {
    let mounts =
        ["--read-only", "--tmpfs", "/tmp:exec", "--tmpfs", "/root:exec", "--tmpfs", "/run"];
    fresh(Image::Trixie, &mounts, &[], None, "/root");
}

#[test]
fn a_read_only_root_where_only_one_folder_lets_programs_run() {
    let mounts = ["--read-only", "--tmpfs", "/tmp:exec", "--tmpfs", "/root"];
    fresh(Image::Bookworm, &mounts, &[], None, "/root");
}

#[test]
fn a_home_that_uses_keyboxd() {
    let docker = Docker::new(Image::Trixie, &[]);
    docker.container.sh(None, "mkdir -m 700 ~/.gnupg; echo use-keyboxd >~/.gnupg/common.conf");
    docker.up(&[]);
    assert_works(&docker, None);
    assert!(!docker.container.processes("keyboxd").is_empty());
    docker.down();
    assert_undone(&docker, None, "/root");
    assert_eq!(docker.container.sh(None, "cat ~/.gnupg/common.conf"), "use-keyboxd\n");
}

/// There is no GnuPG for such a container to be had: scripts stand in for gpg and gpgconf, and a
/// client speaks Assuan by hand, since busybox's nc knows no Unix sockets. It connects from outside
/// of the container, to the socket in it.
#[test]
fn a_container_with_busybox_as_its_only_libc() {
    let docker = Docker::new(Image::Bare, &[]);
    let container = &docker.container;
    container.put_program(
        "/bin/gpg",
        b"#!/bin/sh
        case \"$*\" in
        *--version*) echo 'gpg (GnuPG) 2.2.40' ;;
        *--import-ownertrust*) cat >/root/ownertrust ;;
        *--import*) cat >/root/imported ;;
        esac\n",
    );
    container.put_program(
        "/bin/gpgconf",
        b"#!/bin/sh
        echo homedir:/root/.gnupg
        echo agent-socket:/root/.gnupg/S.gpg-agent\n",
    );
    let helper = static_helper().to_str().unwrap();
    let shown = docker.up(&["--helper-program", helper]);
    assert!(shown.contains(&format!("gpg-agent {} answers", gpg_version())), "{shown}");
    assert_eq!(docker.helpers().len(), 1);

    let socket = container.path_from_outside("/root/.gnupg/S.gpg-agent");
    let mut client = Client::greeted(&socket);
    let signing = &docker.lab.host.keygrips()[1];
    assert_eq!(client.ask(format!("SIGKEY {signing}")), "OK\n");
    assert_eq!(client.ask(format!("SETHASH 8 {}", "0B".repeat(32))), "OK\n");
    let signed = client.ask("PKSIGN");
    assert!(signed.starts_with("D ") && signed.ends_with("OK\n"), "{signed}");
    drop(client);
    // The keys that came are those of home.
    let imported = container.sh_with(None, "cat /root/imported", b"");
    let shown = feed(&mut docker.lab.host.gpg(["--show-keys", "--with-colons"]), &imported);
    assert!(text(&shown.stdout).contains(&docker.lab.host.fingerprint()));
    let trust = container.sh(None, "cat /root/ownertrust");
    assert!(trust.contains(&docker.lab.host.fingerprint()), "{trust}");

    docker.down();
    assert_undone(&docker, None, "/root");
}
