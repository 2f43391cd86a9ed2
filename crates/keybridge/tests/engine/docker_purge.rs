//! `down --purge` in a container: nothing of keybridge is left there.

use crate::any_engine::signs::assert_works;
use crate::lab::{Docker, Image, run, text};

#[track_caller]
fn assert_purged(docker: &Docker, before: &str) {
    let said = text(&run(&mut docker.keybridge(["down", "--purge", &docker.container.name])));
    assert!(said.contains("1 public keys and 1 ownertrust values removed"), "{said}");
    let user = Some("dev");
    assert_eq!(docker.container.sh(user, "gpg --batch --list-keys 2>/dev/null"), "");
    let trust = docker.container.sh(user, "gpg --batch --export-ownertrust | grep -v '^#' || true");
    assert_eq!(trust, "");
    assert_eq!(docker.container.sh(user, FILES), before);
    assert_eq!(docker.helpers(), Vec::<String>::new());
}

/// What is in the home, but for what gpg and git make by themselves.
const FILES: &str = "find ~ -name .cache -prune -o -path '*/.gnupg/*' ! -name '*keybridge*' -prune \
                     -o -name .gnupg -o -print; find ~/.cache -type f 2>/dev/null || true";

#[test]
fn keys_trust_and_the_helper_go_for_the_user_that_was_bridged() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let before = docker.container.sh(Some("dev"), FILES);
    docker.up(&["--user", "dev"]);
    assert_works(&docker, Some("dev"));
    // A plain one before, so that the target isn't bridged any more.
    docker.down();
    assert_purged(&docker, &before);
}

#[test]
fn keys_of_a_home_that_uses_keyboxd_go_too() {
    let docker = Docker::new(Image::Trixie, &[]);
    let make = "mkdir -m 700 ~/.gnupg; echo use-keyboxd >~/.gnupg/common.conf";
    docker.container.sh(Some("dev"), make);
    let before = docker.container.sh(Some("dev"), FILES);
    docker.up(&["--user", "dev"]);
    assert_works(&docker, Some("dev"));
    assert_purged(&docker, &before);
}
