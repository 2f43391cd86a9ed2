//! Set-ups in which nothing is broken.

use crate::lab::Image;
use crate::scene::Scene;

#[test]
fn a_working_container_signs_and_the_signature_is_verified() {
    let scene = Scene::bridged();
    let signature = scene.assert_clean();
    let fact = signature.row("signature")["fact"].as_str().unwrap().to_owned();
    assert!(fact.contains("verified"), "{fact}");
}

#[test]
fn a_container_that_was_never_bridged_is_only_not_bridged() {
    let scene = Scene::new();
    // Nothing is left behind by this, which would show in the container or at home.
    let fix = scene.assert_found_and_fixed("bridge", 1, &["is not bridged"]);
    let (home, name) = (scene.lab().host.path().display(), &scene.container().name);
    assert_eq!(fix, format!("keybridge up --gnupg-home={home} docker://{name}"));
}

#[test]
fn gnupg_2_4_in_the_target() {
    let scene = Scene::with(Image::Trixie, &[], Some("dev"));
    scene.up(&[]);
    scene.assert_clean();
}
