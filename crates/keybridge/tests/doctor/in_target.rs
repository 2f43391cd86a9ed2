//! What is broken in the target.

use crate::lab::run;
use crate::scene::{EMAIL, Scene};

#[test]
fn no_public_key() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    scene.sh(&format!("gpg --batch --yes --delete-keys {key}"));
    scene.assert_found_and_fixed("public-keys", 1, &["lacks the public key", &key]);
}

#[test]
fn a_public_key_that_is_stale() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    run(&mut scene.lab().host.gpg(["--quick-set-expire", &key, "2y"]));
    scene.assert_found_and_fixed("public-keys", 1, &["older", &key, "expires"]);
}

#[test]
fn no_trust() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    scene.sh(&format!("echo {key}:2: | gpg --batch --import-ownertrust"));
    scene.assert_found_and_fixed("ownertrust", 0, &[&key]);
}

#[test]
fn an_agent_with_keys_that_has_the_socket() {
    let scene = Scene::new();
    // As somebody has done who worked in the container before.
    scene.sh("gpg --batch --passphrase '' --quick-gen-key 'There <there@keybridge.example>'");
    scene.assert_found_and_fixed("target-socket", 1, &["gpg-agent", "secret keys"]);
}

#[test]
fn an_agent_that_takes_the_socket_from_a_bridge() {
    let scene = Scene::bridged();
    scene.sh("rm $(gpgconf --list-dirs agent-socket); gpg-agent --daemon");
    scene.assert_found_and_fixed("target-socket", 1, &["gpg-agent"]);
}

#[test]
fn a_gnupg_home_of_another_owner() {
    let scene = Scene::with(crate::lab::Image::Bookworm, &[], Some("dev"));
    scene.container().sh(Some("root"), "mkdir -m 700 /home/dev/.gnupg");
    scene.assert_found_and_fixed("target-home", 1, &["/home/dev/.gnupg", "belongs"]);
}

#[test]
fn git_without_a_signing_key() {
    let scene = Scene::bridged();
    // Then gpg looks for a key by this name.
    scene.sh("git config --global --unset user.signingkey
        git config --global commit.gpgsign true
        git config --global user.email there@keybridge.example");
    scene.assert_found_and_fixed("git-signing", 1, &["no user.signingkey"]);
}

#[test]
fn an_email_that_is_not_on_the_key() {
    let scene = Scene::bridged();
    scene.sh("git config --global user.email there@keybridge.example");
    scene.assert_found_and_fixed("git-email", 0, &["there@keybridge.example"]);
    assert_eq!(scene.sh("git config user.email").trim(), EMAIL);
}
