//! Settings reach the bridge in the background whole, and another `up` changes what it names.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::lab::{self, Client, Lab, eventually, output, run, text};

/// A host with a key, whose bridges in the background end with it.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    pub(crate) address: String,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let lab = Lab::with_key();
        lab::make_private(&lab.at("run"));
        let address = lab::local(lab.target.path());
        Self { lab, address }
    }

    pub(crate) fn try_keybridge(&self, words: &[&str]) -> Output {
        let mut command = self.lab.keybridge();
        output(command.env("XDG_RUNTIME_DIR", self.lab.at("run")).args(words))
    }

    /// What a command has said that has to succeed.
    #[track_caller]
    pub(crate) fn keybridge(&self, words: &[&str]) -> String {
        let ended = self.try_keybridge(words);
        assert!(ended.status.success(), "{words:?}: {}", text(&ended.stderr));
        text(&ended.stdout)
    }

    #[track_caller]
    pub(crate) fn up(&self, options: &[&str]) -> String {
        self.keybridge(&[&["up", &self.address], options].concat())
    }

    /// The complaint of an `up` that has to fail.
    #[track_caller]
    fn refused(&self, options: &[&str]) -> String {
        let ended = self.try_keybridge(&[&["up", &self.address], options].concat());
        assert!(!ended.status.success(), "{options:?}: {}", text(&ended.stdout));
        text(&ended.stderr)
    }

    pub(crate) fn status(&self) -> Value {
        self.status_of(&self.address)
    }

    pub(crate) fn status_of(&self, address: &str) -> Value {
        let status: Value =
            serde_json::from_str(&self.keybridge(&["status", "--json", address])).unwrap();
        status["bridges"][0].clone()
    }

    /// The words that a process of this lab was started with, whose words have all of these.
    fn command_lines(&self, having: &[&str]) -> Vec<Vec<String>> {
        let read = |process: &std::path::Path, file| {
            text(&std::fs::read(process.join(file)).unwrap_or_default())
        };
        let of_this_lab = self.lab.folder().to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let processes = processes.filter(|path| read(path, "environ").contains(of_this_lab));
        let lines = processes.map(|path| {
            let line = read(&path, "cmdline");
            line.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
        });
        let has = |line: &Vec<String>, word: &&str| line.iter().any(|one| one.contains(*word));
        lines.filter(|line| having.iter().all(|word| has(line, word))).collect()
    }

    /// The value of an option that the one helper was started with.
    #[track_caller]
    fn helper_option(&self, name: &str) -> String {
        let helpers = self.command_lines(&["keybridge-remote", "--cookie"]);
        let [helper] = helpers.as_slice() else { panic!("one helper runs: {helpers:?}") };
        let at = helper.iter().position(|word| word == name).unwrap();
        helper[at + 1].clone()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.try_keybridge(&["down", "--all"]);
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn settings_reach_the_background_without_its_command_line() {
    let scene = Scene::new();
    let key = scene.lab.host.fingerprint();
    scene.up(&["--lend", &key, "--outlive", "77", "--max-sessions=9"]);
    assert_eq!(scene.status()["lending"]["lend"], key.as_str());
    assert_eq!(scene.helper_option("--outlive"), "77");
    assert_eq!(scene.helper_option("--max-sessions"), "9");
    let serving = scene.command_lines(&["serve", &scene.address]);
    assert_eq!(serving.len(), 1, "{serving:?}");
    assert!(!serving[0].iter().any(|word| word.contains(&key)), "{serving:?}");
}

#[test]
fn another_up_changes_what_it_names_and_nothing_else() {
    let scene = Scene::new();
    scene.up(&["--max-sessions", "9"]);
    let first = scene.status();
    let shown = scene.up(&["--outlive", "77", "--max-sessions", "9"]);
    assert!(
        shown.contains("is bridged already") && shown.contains("; changed: outlive"),
        "{shown}"
    );
    let second = scene.status();
    assert_eq!((&second["pid"], &second["reconnects"]), (&first["pid"], &Value::from(1)));
    assert_eq!(scene.helper_option("--outlive"), "77");
    // What was named before stays, and what is the same needs no other link.
    let shown = scene.up(&["--outlive", "77"]);
    assert!(!shown.contains("changed"), "{shown}");
    assert_eq!(scene.helper_option("--max-sessions"), "9");
    assert_eq!(scene.status()["reconnects"], 1);
    let version = Client::greeted(&scene.lab.target.socket()).ask("GETINFO version");
    assert!(version.ends_with("OK\n"), "{version}");
}

#[test]
fn a_file_changes_nothing_on_a_bridge_that_is_up_and_up_says_so() {
    let scene = Scene::new();
    scene.up(&[]);
    let wider =
        "[defaults]\nuses = [\"sign\", \"decrypt\", \"certify\"]\nallow-get-passphrase = true\n";
    let file = scene.lab.file("config.toml", wider);
    let config = ["--config", file.to_str().unwrap()];
    let shown = scene.up(&config);
    let kept = "keeps what was set before for uses, allow-get-passphrase:";
    assert!(shown.contains(kept), "{shown}");
    let status = scene.status();
    assert_eq!(
        (&status["reconnects"], &status["lending"]["uses"]),
        (&Value::from(0), &Value::Null)
    );
    // The caller's own word counts, and nothing is said of it.
    let shown = scene.up(&[&config[..], &["--uses", "sign,decrypt,certify"]].concat());
    assert!(shown.contains("before for allow-get-passphrase:"), "{shown}");
    assert_eq!(scene.status()["lending"]["uses"][2], "certify");
    // A new bridge reads the file.
    scene.keybridge(&["down", &scene.address]);
    let shown = scene.up(&config);
    assert!(!shown.contains("keeps"), "{shown}");
}

#[test]
fn what_another_choice_of_keys_warns_of_is_shown() {
    let scene = Scene::new();
    scene.up(&[]);
    let key = scene.lab.host.fingerprint();
    let shown = scene.up(&["--lend", &format!("{key},nobody@x")]);
    assert!(shown.contains("! no secret key matches nobody@x"), "{shown}");
    assert_eq!(scene.status()["reconnects"], 0);
}

#[test]
fn a_change_that_cannot_be_made_is_an_error_and_the_bridge_goes_on() {
    let scene = Scene::new();
    scene.up(&[]);
    let before = scene.status();
    std::fs::write(scene.lab.at("home").join(".gitconfig"), "[user]\nsigningKey = nobody@x\n")
        .unwrap();
    let down = format!("→ keybridge down {}, then keybridge up", scene.address);
    for (options, why) in [
        // This machine has no ssh-agent here.
        (&["--lanes", "ssh"][..], "no ssh-agent answers"),
        (&["--max-sessions", "0"], "max-sessions 0: expected a number from 1"),
        (&["--outlive", "5", "--lend", "nobody@x"], "no secret key matches nobody@x"),
        (&["--git"], "user.signingKey nobody@x isn't among the keys"),
        (&["--helper-program", "/no/helper"], "reading the helper /no/helper: No such file"),
        (&["--helper", "/a/server"], "is bridged with another helper"),
        (&["--helper", "/a/server"], &down),
    ] {
        let said = scene.refused(options);
        assert!(said.contains(why), "{options:?}: {said}");
    }
    let after = scene.status();
    assert_eq!((&after["state"], &after["reconnects"]), (&before["state"], &before["reconnects"]));
    assert_eq!(after["lending"], before["lending"]);
    assert_ne!(scene.helper_option("--outlive"), "5");
    let version = Client::greeted(&scene.lab.target.socket()).ask("GETINFO version");
    assert!(version.ends_with("OK\n"), "{version}");
}

/// The first link can take its time, and is made with what the first `up` has named.
#[test]
fn an_up_during_the_first_link_waits_for_one_with_its_own_settings() {
    let mut scene = Scene::new();
    // Another helper takes the place of the one that other tests use.
    scene.lab.set_cache(scene.lab.at("cache"));
    let host = &scene.lab.host;
    host.add_key("Other <other@keybridge.example>");
    let real = Path::new(env!("CARGO_BIN_EXE_keybridge")).with_file_name("keybridge-remote");
    let (gate, waits) = (scene.lab.at("gate"), scene.lab.at("waits"));
    run(host.command("mkfifo").arg(&gate));
    let script = format!(
        "#!/bin/sh\nif [ ! -e {0} ]; then echo >{0}; cat {1}; fi\nexec {2} \"$@\"\n",
        waits.display(),
        gate.display(),
        real.display()
    );
    let slow = scene.lab.file("slow", script);
    let start = |options: &[&str]| {
        let mut command = scene.lab.keybridge();
        command.env("XDG_RUNTIME_DIR", scene.lab.at("run")).args(["up", &scene.address]);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let first = start(&["--helper-program", slow.to_str().unwrap(), "--lend", &host.fingerprint()]);
    eventually("the first link is being made", || waits.exists());
    let second = start(&["--lend", "other@keybridge.example"]);
    eventually("the second has named its keys", || {
        scene.status()["lending"]["lend"] == "other@keybridge.example"
    });
    std::fs::write(&gate, "").unwrap();
    for up in [first, second] {
        let ended = up.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    }
    let mut client = Client::greeted(&scene.lab.target.socket());
    let mut have = |user: &str| client.ask(format!("HAVEKEY {}", host.keygrip_of(user)));
    assert_eq!(have("other@keybridge.example"), "OK\n");
    assert!(have(lab::USER).starts_with("ERR"));
}

#[test]
fn a_unit_has_every_setting_wherever_it_was_set() {
    let scene = Scene::new();
    let mut watch = scene.lab.keybridge();
    watch.args(["watch", "--unit", "--label=a=b", "--uses=sign,decrypt", "--git", "--outlive=9"]);
    let unit = text(&run(watch.env("KEYBRIDGE_LEND", "50%$x").current_dir(scene.lab.folder())));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    for flag in
        ["\"--lend=50%%$$x\"", "\"--uses=sign,decrypt\"", "\"--git=true\"", "\"--outlive=9\""]
    {
        assert!(start.contains(flag), "{flag}: {start}");
    }
    let home = format!("\"--gnupg-home={}\"", scene.lab.host.path().display());
    assert!(start.contains(&home), "{start}");
}
