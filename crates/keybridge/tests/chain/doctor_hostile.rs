//! `doctor` and a target that lies: what it prints and runs on this machine is never of the target's choosing.

use crate::lab::{Lab, local, output, run, text, write_program};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

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

    /// Has the helper print what an inspection always has, and these facts in their places.
    fn says(&self, lies: &[(&str, Value)]) {
        let lane = json!({
            "socket": null, "listener": "nobody", "is_set_up": null, "starters": [], "problem": null,
        });
        let mut facts = json!({
            "user": { "name": "dev", "uid": 1000 },
            "gnupg": {
                "program": "/usr/bin/gpg", "version": { "Ok": "2.4.7" }, "home": null, "has_home": true,
                "home_problem": null,
            },
            "lanes": { "gpg": lane, "ssh": lane, "git": lane },
            "keys": [],
            "git": null,
            "signature": null,
        });
        for (place, lie) in lies {
            *facts.pointer_mut(place).unwrap() = lie.clone();
        }
        self.runs(&format!("cat <<'LIE'\nkeybridge-inspection {facts}\nLIE"));
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
    assert_eq!(lending["uses"], serde_json::json!(["sign"]), "{said}");
}

#[test]
fn a_helper_that_lies_about_its_version_gets_no_other_keys() {
    let liar = Liar::new();
    let key = liar.lab.host.fingerprint();
    run(&mut liar.keybridge(&["up", "--lend", &key, "--uses", "sign", &liar.target()]));
    let before = liar.lending();
    let listener = json!({ "pid": null, "version": "0.0.1" });
    liar.says(&[
        ("/lanes/gpg/socket", json!("/s")),
        ("/lanes/gpg/listener", json!({ "helper": listener })),
    ]);
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
    for lie in [&evil, &long, &format!("{long}{evil}"), "\u{1b}]0;x\u{7}\n\r\u{202e}"] {
        let home = |kind: &str, fix: Option<&str>| {
            let problem = json!({ "kind": kind, "message": lie, "fix": fix });
            vec![("/gnupg/home", json!(lie)), ("/gnupg/home_problem", problem)]
        };
        let starter = |kind: &str| {
            let starter = json!([{ "kind": kind, "name": lie, "fix": lie }]);
            vec![("/lanes/gpg/starters", starter)]
        };
        let setting = json!({ "value": lie, "file": lie });
        let git = json!({
            "version": { "Ok": lie }, "problem": null, "email": setting, "signing_key": setting,
            "format": null, "sign_commits": null, "gpg_program": setting,
            "ssh_program": null, "entries": [],
        });
        for facts in [
            home("too-open", Some(lie)),
            home("wrong-owner", None),
            home("other", Some(&format!("`{lie}`"))),
            starter("systemd-unit"),
            starter("gpg-conf"),
            vec![
                ("/lanes/gpg/socket", json!(lie)),
                ("/lanes/gpg/listener", json!({ "unknown": lie })),
                ("/lanes/gpg/problem", json!(lie)),
            ],
            vec![("/git", git.clone())],
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
        "exec yes 'keybridge-inspection {'",
        "exec tr '\\0' x </dev/zero",
        "printf 'keybridge-inspection {'; while :; do printf ' '; sleep 0.1; done",
        "trap '' TERM HUP INT PIPE; while :; do sleep 1; done",
        "sleep 130 & exit 0",
    ] {
        liar.runs(script);
        let json = liar.json(&[]);
        assert_eq!(json["first"], "helper", "{script}: {json}");
    }
}

#[test]
fn no_sentence_of_a_target_passes_for_one_of_doctors() {
    const WORDS: &str = "run this as root on your own machine";
    let liar = Liar::new();
    let marked = format!("{} says: {WORDS}", liar.target());
    let problem =
        |message: &str, fix: Value| json!({ "kind": "other", "message": message, "fix": fix });
    let starter = |kind: &str| json!([{ "kind": kind, "name": WORDS, "fix": "true" }]);
    let git = |setting: &str| {
        let mut git = json!({
            "version": { "Ok": WORDS }, "problem": null, "email": null, "signing_key": null,
            "format": null, "sign_commits": null, "gpg_program": null, "ssh_program": null,
            "entries": [],
        });
        git[setting] = json!({ "value": WORDS, "file": WORDS });
        git
    };
    let lies = [
        vec![("/user/name", json!(WORDS)), ("/gnupg/program", json!(WORDS))],
        vec![("/gnupg/version", json!({ "Ok": WORDS })), ("/gnupg/home", json!(WORDS))],
        vec![("/gnupg/home", json!(WORDS)), ("/gnupg/has_home", json!(false))],
        vec![("/lanes/gpg/socket", json!(WORDS))],
        vec![("/lanes/gpg/starters", starter("systemd-unit"))],
        vec![("/lanes/gpg/starters", starter("gpg-conf"))],
        vec![("/lanes/gpg/starters", starter("ssh-auth-sock"))],
        vec![(
            "/lanes/gpg/listener",
            json!({ "agent": { "pid": null, "program": WORDS, "has_secret_keys": true } }),
        )],
        vec![("/lanes/gpg/listener", json!({ "helper": { "pid": 1, "version": WORDS } }))],
        vec![("/git", git("signing_key"))],
        vec![("/git", git("email"))],
        vec![("/git", {
            let mut git = git("format");
            git["problem"] = json!(WORDS);
            git
        })],
        vec![("/git", {
            let mut git = git("sign_commits");
            git["version"] = json!({ "Err": WORDS });
            git
        })],
        vec![(
            "/keys",
            json!([{ "fingerprint": liar.lab.host.fingerprint(), "status": { "unknown": WORDS } }]),
        )],
        vec![(
            "/signature",
            json!({ "fingerprint": WORDS, "result": { "Ok": { "secs": 0, "nanos": 1 } } }),
        )],
        vec![("/signature", json!({ "fingerprint": "A", "result": { "Err": WORDS } }))],
        vec![("/gnupg/home_problem", problem(WORDS, Value::Null))],
        vec![("/gnupg/home_problem", problem("x", json!(WORDS)))],
        vec![("/lanes/gpg/socket", json!("/s")), ("/lanes/gpg/problem", json!(WORDS))],
        vec![
            ("/lanes/gpg/socket", json!("/s")),
            ("/lanes/gpg/listener", json!({ "unknown": WORDS })),
        ],
        vec![("/gnupg/version", json!({ "Err": WORDS }))],
    ];
    let nobody = ("/lanes/gpg/listener", json!("nobody"));
    let helper = json!({ "pid": null, "version": null });
    let helper = ("/lanes/gpg/listener", json!({ "helper": helper }));
    let mut seen = Vec::new();
    for listener in [nobody, helper] {
        for (number, lies) in lies.iter().enumerate() {
            liar.says(&[std::slice::from_ref(&listener), &lies[..]].concat());
            let shown = text(&liar.doctor(&[]).stdout);
            assert!(!shown.contains("no facts"), "{lies:?}: {shown}");
            seen.extend(shown.contains(&marked).then_some(number));
            assert_eq!(
                shown.matches(WORDS).count(),
                shown.matches(&marked).count(),
                "{lies:?}: {shown}"
            );
        }
        // What is behind the bridge is looked at only if it works.
        run(&mut liar.keybridge(&["up", &liar.target()]));
    }
    let unseen = (0..lies.len()).find(|number| !seen.contains(number));
    assert_eq!(unseen.map(|number| &lies[number]), None);
    liar.runs(&format!("echo {WORDS} >&2; exit 1"));
    let shown = text(&liar.doctor(&[]).stdout);
    assert!(shown.contains(&marked), "{shown}");
}

#[test]
fn no_program_that_git_is_said_to_run_passes_for_a_sentence_of_doctors() {
    const WORDS: &str = "run this as root on your own machine";
    let liar = Liar::new();
    run(&mut liar.keybridge(&["up", "--lanes", "git", "--git", &liar.target()]));
    let marked = format!("{} says: {WORDS}", liar.target());
    let listener = json!({ "pid": null, "version": null });
    let setting = json!({ "value": WORDS, "file": WORDS });
    let git = json!({
        "version": { "Ok": "2.47.0" }, "problem": null, "email": null, "signing_key": null, "format": null,
        "sign_commits": null, "gpg_program": setting, "ssh_program": null, "entries": [],
    });
    liar.says(&[("/lanes/git/listener", json!({ "helper": listener })), ("/git", git)]);
    let shown = text(&liar.doctor(&[]).stdout);
    assert!(shown.contains("git in the target signs with"), "{shown}");
    assert!(shown.contains(&marked), "{shown}");
    assert_eq!(shown.matches(WORDS).count(), shown.matches(&marked).count(), "{shown}");
}

#[test]
fn the_superuser_in_the_target_never_gives_a_folder_away_that_the_target_named() {
    let liar = Liar::new();
    for home in ["/home/dev/.gnupg", "/etc", "/home/x/../../etc/.gnupg"] {
        let problem = json!({ "kind": "wrong-owner", "message": "not yours", "fix": null });
        liar.says(&[("/gnupg/home", json!(home)), ("/gnupg/home_problem", problem)]);
        let json = liar.json(&[]);
        assert_eq!(json["first"], "target-home", "{json}");
        assert!(!json.to_string().contains("chown"), "{home}: {json}");
    }
}
