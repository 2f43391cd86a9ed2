//! Targets that a command leads to: `exec:`, `ssh://` and `wsl://`, with real programs and a real sshd in a
//! container that has a network of its own. `scripts/lab` starts the engine and makes the images.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

mod bad_input;
mod exec;
mod git;
mod healing;
mod questions;
mod ssh;
mod ssh_host;
mod wsl;

use std::process::Output;

use lab::{ContainerLab, text};

/// What a refused `up` says; it has to end with this status.
#[track_caller]
fn refused(scene: &ContainerLab, address: &str, status: i32) -> String {
    let ended = lab::output(&mut scene.keybridge(["up", address]));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(status), "{said}");
    assert_eq!(scene.bridges().len(), 0, "a bridge is left");
    said
}

/// Whether gpg signs there as a user.
fn signs(scene: &ContainerLab, user: Option<&str>) -> Output {
    scene.signs(user)
}

/// Both lanes: a signature, and a list of the ssh-agent's keys where there is one.
#[track_caller]
fn assert_signs(scene: &ContainerLab, user: Option<&str>) {
    let signed = signs(scene, user);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    assert!(text(&signed.stdout).contains("BEGIN PGP SIGNATURE"));
}

/// Nothing of a bridge is left in the container but public keys.
#[track_caller]
fn assert_undone(scene: &ContainerLab, user: Option<&str>, home: &str) {
    assert_eq!(scene.helpers(), Vec::<String>::new());
    let find = format!("find {home} /tmp /run -type s 2>/dev/null | grep -v keyboxd || true");
    assert_eq!(scene.container.sh(user, &find), "");
    let marked = scene.container.try_sh(user, &format!("grep -l keybridge {home}/.gnupg/*.conf"));
    assert_eq!(text(&marked.stdout), "", "marked lines stay");
    assert!(!signs(scene, user).status.success());
}
