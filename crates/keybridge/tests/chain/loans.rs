//! What is lent for a time (`keybridge lend`).

use serde_json::{Value, json};

use crate::lab::{eventually, text};
use crate::second_command::kill;
use crate::settings::Scene;
use crate::uses::{Git, is_refused, succeeds};

#[test]
fn a_loan_ends_by_itself_and_leaves_what_was_lent_before() {
    let scene = Scene::new();
    scene.up(&["--uses", "commit"]);
    let git = Git::new(&scene);
    succeeds(&git.commit());
    is_refused(&git.tag("v1"), "signatures of tags aren't lent");
    let said = scene.keybridge(&["lend", &scene.address, "--uses", "tag", "--for", "1h"]);
    assert!(said.contains("(commit, tag)") && said.contains("more: tag"), "{said}");
    succeeds(&git.tag("v1"));
    let loan = &scene.status()["loans"][0];
    assert_eq!(loan["uses"], json!(["tag"]));
    assert!((3500..=3600).contains(&loan["left"].as_u64().unwrap()), "{loan}");
    // Another loan of the same takes its place.
    scene.keybridge(&["lend", &scene.address, "--uses", "tag", "--for", "1s"]);
    eventually("the loan ends", || scene.status()["loans"] == Value::Null);
    is_refused(&git.tag("v2"), "signatures of tags aren't lent");
    succeeds(&git.commit());
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn a_loan_of_another_lane_brings_that_lane_for_the_time() {
    let scene = Scene::new();
    scene.up(&["--uses", "commit"]);
    assert_eq!(scene.status()["lanes"]["gpg"], Value::Null);
    scene.keybridge(&["lend", &scene.address, "--uses", "sign", "--for", "1h"]);
    assert!(scene.lab.target.has_socket());
    // Who says what is lent ends it.
    scene.up(&["--uses", "commit"]);
    let status = scene.status();
    assert_eq!((&status["loans"], &status["lanes"]["gpg"]), (&Value::Null, &Value::Null));
    eventually("gpg's socket goes", || !scene.lab.target.has_socket());
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn a_loan_does_not_outlive_a_bridge_that_was_killed() {
    let scene = Scene::new();
    scene.up(&["--uses", "commit"]);
    scene.keybridge(&["lend", &scene.address, "--uses", "tag", "--for", "1h"]);
    kill(scene.status()["pid"].as_u64());
    let said = scene.up(&[]);
    assert!(said.contains("(commit)"), "{said}");
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn what_is_no_loan_is_told() {
    let scene = Scene::new();
    for (words, told) in [
        (&["lend", "--uses", "tag", "--for", "1h", &scene.address][..], "is not bridged"),
        (&["lend", "--uses", "tags", "--for", "1h", &scene.address], "no such use"),
        (
            &["lend", "--uses", "tag", "--for", "1x", &scene.address],
            "expected a number and s, m, h",
        ),
        (&["lend", "--for", "1h", &scene.address], "--uses"),
    ] {
        let ended = scene.try_keybridge(words);
        let said = text(&ended.stderr);
        assert!(!ended.status.success() && said.contains(told), "{words:?}: {said}");
    }
}
