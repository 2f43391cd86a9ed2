//! gpg 2.4 in the container and the agent of gpg 2.2 at home.

use crate::lab::{Docker, Image, text};

/// A primary key that only certifies, with a subkey that signs, is what shows the difference.
#[test]
fn a_newer_gpg_signs_with_healing_and_fails_without_as_a_forwarded_socket_does() {
    let docker = Docker::new(Image::Trixie, &[]);
    docker.up(&["--heal=false", "--log", "debug"]);
    let failed = docker.signs(None);
    let said = text(&failed.stderr);
    assert!(!failed.status.success(), "it signs: {said}");
    assert!(said.contains("Unusable secret key") || said.contains("No secret key"), "{said}");
    assert!(!docker.log().contains("forbids KEYINFO"));
    docker.down();

    docker.up(&["--log", "debug"]);
    let signed = docker.signs(None);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    assert!(docker.log().contains("the agent forbids KEYINFO"), "{}", docker.log());
}

#[test]
fn an_older_gpg_needs_no_healing() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&["--heal=false", "--log", "debug"]);
    let signed = docker.signs(None);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    docker.down();
    docker.up(&["--log", "debug"]);
    assert!(docker.signs(None).status.success());
    assert!(!docker.log().contains("forbids KEYINFO"), "{}", docker.log());
}

#[test]
fn healing_can_be_switched_off_in_the_configuration() {
    let docker = Docker::new(Image::Trixie, &[]);
    let config = docker.lab.file("config.toml", "[defaults]\nheal = false\n");
    docker.up(&["--config", config.to_str().unwrap()]);
    assert!(!docker.signs(None).status.success());
}
