//! What a target may have done (`uses`), and nothing else.

use std::process::Output;

use serde_json::Value;

use crate::lab::{command, output, run, text};
use crate::settings::Scene;

/// git in the target, in a repository of its own.
pub(crate) struct Git<'a>(&'a Scene);

impl<'a> Git<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
        let git = Self(scene);
        let folder = scene.lab.at("work");
        std::fs::create_dir(&folder).unwrap();
        run(scene.lab.target.command("git").args(["init", "--quiet"]).arg(&folder));
        git
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut git = self.0.lab.target.command("git");
        git.args(["-c", "user.name=Lab", "-c", "user.email=lab@keybridge.example"]).args(words);
        output(git.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(self.0.lab.at("work")))
    }

    pub(crate) fn commit(&self) -> Output {
        self.run(&["commit", "--quiet", "-S", "--allow-empty", "-m", "a commit"])
    }

    pub(crate) fn tag(&self, name: &str) -> Output {
        self.run(&["tag", "-s", "-m", "a tag", name])
    }
}

#[track_caller]
pub(crate) fn succeeds(ended: &Output) {
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[track_caller]
pub(crate) fn is_refused(ended: &Output, why: &str) {
    let said = text(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains(why) || !git_tells_why(), "{said}");
}

/// Whether git shows what the program said that didn't sign: it does from 2.41 on.
fn git_tells_why() -> bool {
    let version = text(&run(command("git").arg("--version")));
    let mut numbers = version.split(['.', ' ']).filter_map(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(41))
}

#[test]
fn who_lends_commits_by_name_lends_nothing_else() {
    let scene = Scene::new();
    let shown = scene.up(&["--uses", "commit"]);
    assert!(shown.contains("lent: 1 key of gpg-agent (commit)"), "{shown}");
    let lanes = &scene.status()["lanes"];
    assert!(lanes["gpg"] == Value::Null && lanes["ssh"] == Value::Null, "{lanes}");
    assert!(!scene.lab.target.has_socket());
    let git = Git::new(&scene);
    succeeds(&git.commit());
    run(scene
        .lab
        .host
        .command("git")
        .args(["verify-commit", "HEAD"])
        .current_dir(scene.lab.at("work")));
    is_refused(&git.tag("v1"), "signatures of tags aren't lent");
    // Another `up` counts at once, and widens only what it names.
    scene.up(&["--uses", "tag"]);
    is_refused(&git.commit(), "signatures of commits aren't lent");
    succeeds(&git.tag("v2"));
    scene.up(&["--uses", "commit,tag"]);
    succeeds(&git.commit());
    assert_eq!(scene.status()["reconnects"], 0);
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn git_signs_nothing_where_only_hashes_are_lent() {
    let scene = Scene::new();
    scene.up(&["--uses", "sign"]);
    assert!(scene.lab.target.has_socket() && !scene.lab.at("home/.keybridge").exists());
    // With gpg in the target.
    let git = Git::new(&scene);
    let key = scene.lab.host.fingerprint();
    succeeds(&git.run(&[
        "-c",
        &format!("user.signingKey={key}"),
        "commit",
        "-qS",
        "--allow-empty",
        "-m",
        "x",
    ]));
    scene.keybridge(&["down", &scene.address]);
}
