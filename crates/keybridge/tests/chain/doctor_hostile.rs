//! `doctor` and a target that lies: what it prints and runs on this machine is never of the target's choosing.

use crate::lab::{Lab, local, output, run, text, write_program};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A host, and a target with a helper that prints what it is told to.
struct Liar {
    lab: Lab,
    helper: PathBuf,
}

impl Liar {
    fn new() -> Self {
        let mut lab = Lab::with_key();
        lab.host.launch_agent();
        // The helper is put there again for each lie.
        let cache = lab.at("cache");
        lab.set_cache(&cache);
        let helper = lab.at("liar");
        Self { lab, helper }
    }

    /// Has the helper run this script.
    fn runs(&self, script: &str) {
        write_program(&self.helper, format!("#!/bin/sh\n{script}\n"));
    }

    /// Has the helper print these facts, between those that every inspection has.
    fn says(&self, facts: &str) {
        self.runs(&format!(
            "cat <<'LIE'\ninspection 1\nuser dev\nuid 1000\ngnupg /usr/bin/gpg\ngnupg-version 2.4.7\n\
             gnupg-has-home yes\n{facts}\nend \nLIE"
        ));
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        command.env("KEYBRIDGE_STATE", self.lab.at("state")).args(words);
        command
    }

    fn target(&self) -> String {
        local(self.lab.target.path())
    }

    fn doctor(&self, words: &[&str]) -> std::process::Output {
        let mut doctor = self.keybridge(&["doctor", "--helper-program"]);
        output(doctor.arg(&self.helper).args(words).arg(self.target()))
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let said = self.doctor(&[&["--json"], words].concat());
        serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
    }

    /// What the bridge lends.
    fn lending(&self) -> Value {
        let status = run(&mut self.keybridge(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"][0]["lending"].clone()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        let _ = self.keybridge(&["down", "--all"]).output();
    }
}

/// Every command that is printed.
fn commands(json: &Value) -> Vec<&str> {
    let checks = json["checks"].as_array().unwrap().iter();
    let fixes = checks.flat_map(|check| check["fixes"].as_array().unwrap());
    fixes.map(|fix| fix["command"].as_str().unwrap()).collect()
}

#[test]
fn a_bridge_that_a_fix_starts_lends_no_more_than_was_asked_for() {
    let liar = Liar::new();
    let key = liar.lab.host.fingerprint();
    let target = liar.target();
    let config = liar.lab.file("config.toml", "[defaults]\nresponse-limit = 7\n");
    let config = config.to_str().unwrap();
    let words = ["--config", config, "doctor", "--json", "--lend", &key, "--uses", "sign"];
    let said = output(liar.keybridge(&words).arg(&target));
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    let said = commands(&json).into_iter().find(|one| one.starts_with("keybridge up ")).unwrap();
    assert!(said.contains(&format!(" --config={config} ")), "{said}");
    let words: Vec<&str> = said.split(' ').skip(1).collect();
    run(&mut liar.keybridge(&words));
    let lending = liar.lending();
    assert_eq!(lending["lend"], *key, "{said}");
    assert_eq!(lending["uses"]["decrypt"], false, "{said}");
}

#[test]
fn a_helper_that_lies_about_its_version_gets_no_other_keys() {
    let liar = Liar::new();
    let key = liar.lab.host.fingerprint();
    run(&mut liar.keybridge(&["up", "--lend", &key, "--uses", "sign", &liar.target()]));
    let before = liar.lending();
    liar.says("gpg-socket /s\ngpg-listener helper\ngpg-listener-version 0.0.1");
    let json = liar.json(&[]);
    assert_eq!(json["first"], "helper", "{json}");
    let commands = commands(&json);
    let again = commands.iter().find(|command| command.contains("keybridge down")).unwrap();
    assert!(
        again.contains(&format!(" --lend {key} ")) && again.contains(" --uses sign "),
        "{again}"
    );
    let fixed = liar.doctor(&["--fix", "--yes"]);
    assert!(!text(&fixed.stdout).contains("$ "), "{fixed:?}");
    assert_eq!(liar.lending(), before);
}

#[test]
fn no_lie_becomes_a_command_of_this_machine() {
    let liar = Liar::new();
    let owned = liar.lab.at("owned");
    let evil =
        format!("'; touch {0}; \"$(touch {0})\" `touch {0}` \\' ; touch {0} ; '", owned.display());
    let long = format!("/{}", "a'b ".repeat(255));
    for lie in [&evil, &long, &format!("{long}{evil}"), "\u{1b}]0;x\u{7}%0a%0d\u{202e}"] {
        for facts in [
            format!("gnupg-home {lie}\ngnupg-home-problem too-open {lie}\ngnupg-home-fix {lie}"),
            format!("gnupg-home {lie}\ngnupg-home-problem wrong-owner {lie}"),
            format!("gnupg-home {lie}\ngnupg-home-problem other {lie}\ngnupg-home-fix `{lie}`"),
            format!("gpg-starter systemd-unit {lie}\ngpg-starter-fix {lie}"),
            format!("gpg-starter gpg-conf {lie}\ngpg-starter-fix {lie}"),
            format!("gpg-socket {lie}\ngpg-listener unknown {lie}\ngpg-problem {lie}"),
            format!(
                "git-version {lie}\ngit-setting user.email {lie}\ngit-setting user.signingkey {lie}"
            ),
        ] {
            liar.says(&facts);
            let json = liar.json(&[]);
            for command in commands(&json) {
                assert!(!command.chars().any(char::is_control), "{command:?}");
                // `doctor` is asked to run nothing, so a person's shell only reads the words.
                let words =
                    format!("docker() {{ :; }}; env() {{ :; }}; keybridge() {{ :; }}; {command}");
                let read = output(Command::new("bash").args(["-c", &words]));
                assert!(read.status.success() && read.stderr.is_empty(), "{command}: {read:?}");
                assert!(!owned.exists(), "{command}");
            }
            let shown = liar.doctor(&[]);
            assert!(
                !text(&shown.stdout).chars().any(|it| it.is_control() && it != '\n'),
                "{shown:?}"
            );
            // Nothing of the target's is safe.
            let checks = json["checks"].as_array().unwrap().iter();
            let fixes = checks.flat_map(|check| check["fixes"].as_array().unwrap());
            for fix in fixes.filter(|fix| fix["safe"] == true) {
                assert!(!fix["command"].as_str().unwrap().contains("touch"), "{fix}");
            }
        }
    }
}

#[test]
fn a_helper_that_prints_without_end_or_drips_is_given_up() {
    let liar = Liar::new();
    for script in [
        "exec yes 'gpg-starter gpg-conf x'",
        "exec tr '\\0' x </dev/zero",
        "echo 'inspection 1'; while :; do echo 'user x'; sleep 0.1; done",
        "trap '' TERM HUP INT PIPE; while :; do sleep 1; done",
        "sleep 60 & exit 0",
    ] {
        liar.runs(script);
        let start = Instant::now();
        let json = liar.json(&[]);
        assert!(start.elapsed() < Duration::from_secs(45), "{script}: {:?}", start.elapsed());
        assert_eq!(json["first"], "helper", "{script}: {json}");
    }
}

#[test]
fn the_superuser_in_the_target_gives_no_other_folder_away() {
    let liar = Liar::new();
    for (home, is_given) in
        [("/home/dev/.gnupg", true), ("/etc", false), ("/home/x/../../etc/.gnupg", false)]
    {
        liar.says(&format!("gnupg-home {home}\ngnupg-home-problem wrong-owner not yours"));
        let json = liar.json(&[]);
        assert_eq!(json["first"], "target-home", "{json}");
        let is_printed = commands(&json).iter().any(|command| command.contains("chown"));
        assert_eq!(is_printed, is_given, "{home}: {json}");
    }
}
