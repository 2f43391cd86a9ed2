//! What a target may have done (`uses`), and nothing else.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Output;

use keybridge_lab::SshHome;
use serde_json::Value;

use crate::lab::{Client, command, output, run, run_with, text};
use crate::settings::Scene;

/// git in the target, in a repository of its own.
struct Git<'a>(&'a Scene);

impl<'a> Git<'a> {
    fn new(scene: &'a Scene) -> Self {
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

    fn commit(&self) -> Output {
        self.run(&["commit", "--quiet", "-S", "--allow-empty", "-m", "a commit"])
    }

    fn tag(&self, name: &str) -> Output {
        self.run(&["tag", "-s", "-m", "a tag", name])
    }
}

#[track_caller]
fn succeeds(ended: &Output) {
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[track_caller]
fn is_refused(ended: &Output, why: &str) {
    let said = text(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains(why) || !git_tells_why(), "{said}");
}

/// Whether git shows what the program said that didn't sign: it does from 2.41 on.
pub(crate) fn git_tells_why() -> bool {
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

/// The socket of a lane.
#[track_caller]
fn socket(scene: &Scene, lane: &str) -> PathBuf {
    scene.status()["lanes"][lane]["socket"].as_str().unwrap().into()
}

/// A client of gpg's lane that has everything ready for a signature over the hash of a commit.
fn about_to_sign(socket: &Path, keygrip: &str) -> Client {
    let mut client = Client::greeted(socket);
    assert_eq!(client.ask(format!("SIGKEY {keygrip}")), "OK\n");
    assert_eq!(client.ask(format!("SETHASH 8 {}", "A5".repeat(32))), "OK\n");
    client
}

#[test]
fn a_target_that_is_lent_commits_alone_gets_nothing_else_done() {
    let (scene, agent) = (Scene::new(), SshHome::with_key());
    let up = |uses: &str| {
        let mut up = scene.lab.keybridge();
        up.env("XDG_RUNTIME_DIR", scene.lab.at("run")).env("SSH_AUTH_SOCK", agent.socket());
        text(&run(up.args(["up", &scene.address, "--uses", uses])))
    };
    up("commit,sign,decrypt,sshsig");
    let (gpg, ssh) = (socket(&scene, "gpg"), socket(&scene, "ssh"));
    let (key, grips) = (scene.lab.host.fingerprint(), scene.lab.host.keygrips());
    let secret =
        run_with(&mut scene.lab.target.gpg(["-e", "--trust-model=always", "-r", &key]), b"x");
    let secret = scene.lab.file("secret", secret);
    // Not beside its secret half, which ssh-keygen would find.
    let public = scene.lab.file("public", agent.public_key("key"));
    let decrypt = || output(scene.lab.target.gpg(["--decrypt"]).arg(&secret));
    let sign_file = || {
        let mut sign = scene.lab.target.command("ssh-keygen");
        sign.env("SSH_AUTH_SOCK", &ssh).args(["-Y", "sign", "-n", "file", "-f"]);
        output(sign.arg(&public).arg(scene.lab.file("text", "x")))
    };
    succeeds(&decrypt());
    succeeds(&sign_file());
    let held = about_to_sign(&gpg, &grips[0]);

    // The lanes stay: each operation is refused by itself, also to a client that has come before.
    let shown = up("commit,decrypt,login");
    assert!(shown.contains("(commit, decrypt)") && shown.contains("(commit, login)"), "{shown}");
    assert_eq!(scene.status()["reconnects"], 0);
    for mut client in [held, about_to_sign(&gpg, &grips[0])] {
        let answer = client.ask("PKSIGN");
        assert!(answer.starts_with("ERR "), "{answer}");
    }
    succeeds(&decrypt());
    is_refused(&sign_file(), "agent refused operation");

    // And now there is no lane but git's.
    let mut held = Client::greeted(&gpg);
    assert_eq!(held.ask(format!("SETKEY {}", grips[1])), "OK\n");
    assert!(held.ask("PKDECRYPT").ends_with("INQUIRE CIPHERTEXT\n"));
    up("commit");
    assert!(!text(&held.rest()).contains("OK"));
    for socket in [&gpg, &ssh] {
        assert!(UnixStream::connect(socket).is_err(), "{}", socket.display());
    }
    for ended in
        [decrypt(), sign_file(), output(&mut scene.lab.target.gpg(["-u", &key, "--clearsign"]))]
    {
        assert!(!ended.status.success());
    }
    let git = Git::new(&scene);
    succeeds(&git.commit());
    is_refused(&git.tag("v1"), "signatures of tags aren't lent");
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn who_narrows_what_is_lent_is_told_so_and_refused_at_once() {
    let scene = Scene::new();
    for (option, expected) in [
        ("--ask=tags", "ask: tags: no such use; the uses are commit, tag,"),
        ("--limit=30/x", "limit: 30/x: expected a number from 1 to 10000 and m, h or d"),
        ("--logins=github.com", "logins: github.com: expected a user and a host"),
        ("--committers=", "committers is empty"),
    ] {
        let ended = scene.try_keybridge(&["up", &scene.address, option]);
        is_refused(&ended, expected);
    }
    let shown =
        scene.up(&["--uses=commit,tag", "--limit=30/h", "--committers=*@keybridge.example"]);
    let narrowed = "(commit, tag); 30 an hour for each key; commits and tags by \
                    *@keybridge.example alone";
    assert!(shown.contains(narrowed), "{shown}");
    assert!(scene.keybridge(&["status"]).contains(narrowed));
    let git = Git::new(&scene);
    succeeds(&git.commit());
    succeeds(&git.tag("v1"));

    let shown = scene.up(&["--committers", "*@elsewhere.example", "--ask", "tag,decrypt"]);
    assert!(shown.contains("; changed: ask, committers"), "{shown}");
    assert!(shown.contains("(commit, tag after a question)"), "{shown}");
    assert!(shown.contains("ask decrypt: refused without a question"), "{shown}");
    is_refused(&git.commit(), "its committer isn't among those whose commits are signed");
    scene.up(&["--committers", "all", "--limit", "3/d"]);
    is_refused(&git.tag("v2"), "nobody is there who could be asked");
    // The first two count.
    succeeds(&git.commit());
    is_refused(&git.commit(), "the key was used as often as it may be for now");
    let status = scene.status();
    assert_eq!((&status["reconnects"], &status["ask"][0]), (&Value::from(0), &"tag".into()));
    assert_eq!((&status["limit"], &status["committers"]), (&"3/d".into(), &Value::Null));
    let log = scene.keybridge(&["logs", &scene.address]);
    assert!(log.contains("its committer isn't among those"), "{log}");
    scene.up(&["--limit", "none", "--ask", "none"]);
    succeeds(&git.commit());
    succeeds(&git.tag("v2"));
    scene.keybridge(&["down", &scene.address]);
}
