//! `doctor` on a second home of this machine: what it names, what its fixes do, and that it leaves nothing.

use crate::lab::{AtTerminal, KEYBRIDGE, Lab, local, output, run, set_mode, snapshot, text};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A host and a second home, with a state folder and git settings of their own.
struct Chain {
    lab: Lab,
}

impl Chain {
    fn new() -> Self {
        let mut lab = Lab::with_key();
        // What is run as printed is another program, whose helper takes the place of the one that others use.
        lab.set_cache(lab.at("cache"));
        let settings = "[user]\n\tname = Lab\n\temail = lab@keybridge.example\n";
        lab.file("home/.gitconfig", settings);
        lab.host.launch_agent();
        Self { lab }
    }

    fn target(&self) -> String {
        local(self.lab.target.path())
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        command.env("KEYBRIDGE_STATE", self.lab.at("state")).args(words);
        command
    }

    fn up(&self) {
        run(&mut self.keybridge(&["up", &self.target()]));
    }

    fn doctor(&self, options: &[&str]) -> Output {
        output(self.keybridge(&["doctor", &self.target()]).args(options))
    }

    #[track_caller]
    fn json(&self) -> Value {
        let said = self.doctor(&["--json"]);
        serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
    }

    /// Runs a command as it was printed.
    #[track_caller]
    fn run_as_printed(&self, command: &str) {
        let folder = Path::new(KEYBRIDGE).parent().unwrap().display();
        let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
        let mut shell = self.keybridge(&[]);
        let variables: Vec<_> = shell
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        shell = Command::new("sh");
        shell.env_clear().envs(variables).env("PATH", path).args(["-c", command]);
        run(shell.stdin(Stdio::null()));
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let _ = self.keybridge(&["down", "--all"]).output();
    }
}

/// The outcome of a check.
#[track_caller]
fn outcome<'a>(json: &'a Value, name: &str) -> &'a Value {
    let mut checks = json["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"))
}

#[track_caller]
fn assert_first(json: &Value, name: &str) -> String {
    assert_eq!((&json["first"], &json["ok"]), (&name.into(), &false.into()), "{json}");
    outcome(json, name)["fixes"][0]["command"].as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_clean(json: &Value) {
    assert_eq!((&json["ok"], &json["first"]), (&true.into(), &Value::Null), "{json}");
}

#[test]
fn a_working_bridge_is_clean_and_a_signature_is_made() {
    let chain = Chain::new();
    chain.up();
    let json = chain.json();
    assert_clean(&json);
    let signature = outcome(&json, "signature");
    assert_eq!(signature["outcome"], "ok", "{json}");
    assert!(signature["fact"].as_str().unwrap().contains("verified"), "{json}");
    assert!(outcome(&json, "link")["fact"].as_str().unwrap().contains("ms"), "{json}");
    let shown = chain.doctor(&[]);
    assert!(shown.status.success(), "{shown:?}");
    assert!(text(&shown.stdout).contains("every link of the chain works"), "{shown:?}");
}

#[test]
fn without_a_bridge_up_is_the_fix_and_nothing_is_left_in_the_target() {
    let chain = Chain::new();
    let cache = chain.lab.at("cache");
    let before = snapshot(chain.lab.target.path());
    let json = chain.json();
    assert_eq!(snapshot(chain.lab.target.path()), before);
    // The helper was there, and its folder is gone with it.
    assert!(!cache.join("keybridge").exists());
    assert!(!chain.lab.at("state").exists());
    assert_eq!(outcome(&json, "target-gpg")["outcome"], "ok", "{json}");
    assert_eq!(outcome(&json, "signature")["because"], "bridge", "{json}");
    let fix = assert_first(&json, "bridge");
    chain.run_as_printed(&fix);
    assert_clean(&chain.json());
}

#[test]
fn an_agent_that_does_not_run_is_named_and_not_started() {
    let chain = Chain::new();
    chain.lab.host.end_agents();
    let json = chain.json();
    assert_eq!(outcome(&json, "secret-keys")["because"], "gpg-agent", "{json}");
    let fix = assert_first(&json, "gpg-agent");
    assert!(UnixStream::connect(chain.lab.host.socket()).is_err(), "doctor started the agent");
    assert_eq!(chain.doctor(&[]).status.code(), Some(3));
    chain.run_as_printed(&fix);
    assert_first(&chain.json(), "bridge");
    chain.up();
    // A bridge starts the agent for any client, so doctor has to look before it asks through the chain.
    chain.lab.host.end_agents();
    let fix = assert_first(&chain.json(), "gpg-agent");
    chain.run_as_printed(&fix);
    assert_clean(&chain.json());
}

#[test]
fn safe_fixes_are_run_one_after_the_other_and_a_person_is_asked_before_keys_are_lent() {
    let chain = Chain::new();
    chain.up();
    run(&mut chain.keybridge(&["down", &chain.target()]));
    chain.lab.host.end_agents();
    set_mode(&chain.lab.at("state"), 0o755);
    assert_first(&chain.json(), "gpg-agent");
    let asked = chain.doctor(&["--fix"]);
    assert_eq!(asked.status.code(), Some(2), "there is no terminal to ask at: {asked:?}");
    let fixed = chain.doctor(&["--fix", "--yes"]);
    let said = text(&fixed.stdout);
    for command in ["--launch gpg-agent", "$ chmod 700"] {
        assert!(said.contains(command), "{command}: {said}");
    }
    // The bridge that was there may have lent fewer keys than one of now would.
    assert!(!said.contains("$ keybridge up"), "{said}");
    assert_first(&chain.json(), "bridge");
    let doctor = chain.keybridge(&["doctor", &chain.target(), "--fix"]);
    let mut refused = AtTerminal::start(&doctor);
    refused.answer("[y/N]", "");
    assert_eq!(refused.ended().0, 1);
    assert_first(&chain.json(), "bridge");
    let mut agreed = AtTerminal::start(&doctor);
    agreed.answer("[y/N]", "y");
    assert_eq!(agreed.ended().0, 0);
    assert_clean(&chain.json());
}

#[test]
fn a_socket_that_is_not_restricted_is_named() {
    let chain = Chain::new();
    chain.up();
    let extra = chain.lab.host.extra_socket();
    std::fs::remove_file(&extra).unwrap();
    std::os::unix::fs::symlink(chain.lab.host.socket(), &extra).unwrap();
    let json = chain.json();
    let fix = assert_first(&json, "extra-socket");
    assert_eq!(outcome(&json, "signature")["because"], "extra-socket", "{json}");
    chain.run_as_printed(&fix);
    assert_clean(&chain.json());
}

#[test]
fn a_program_that_git_runs_instead_of_the_bridges_is_named_with_what_sets_it() {
    let chain = Chain::new();
    run(&mut chain.keybridge(&["up", "--lanes", "git", "--git", &chain.target()]));
    let json = chain.json();
    assert_clean(&json);
    let entry = chain.lab.at("home/.keybridge/.keybridge-gpg");
    assert_eq!(outcome(&json, "git-program")["fact"], *entry.to_str().unwrap(), "{json}");
    for check in ["git-signers", "target-git"] {
        assert_eq!(outcome(&json, check)["outcome"], "ok", "{json}");
    }
    let cause = |doctor: &mut Command| -> String {
        let said = output(doctor);
        let json: Value = serde_json::from_slice(&said.stdout).unwrap();
        let program = outcome(&json, "git-program");
        assert_eq!(program["outcome"], "warning", "{json}");
        program["cause"].as_str().unwrap().to_owned()
    };
    let doctor = || chain.keybridge(&["doctor", "--json", &chain.target()]);
    // As an editor has it.
    let by_variables = cause(doctor().envs([
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "gpg.program"),
        ("GIT_CONFIG_VALUE_0", "/opt/gpg"),
    ]));
    assert!(by_variables.contains("/opt/gpg"), "{by_variables}");
    assert!(by_variables.ends_with("a GIT_CONFIG variable of its environment sets that"));
    let other = chain.lab.file("other", "[user]\n\tname = Lab\n");
    let without = cause(doctor().env("GIT_CONFIG_GLOBAL", other));
    assert!(without.contains("its own gpg"), "{without}");
    let settings = chain.lab.at("home/.gitconfig");
    let mut lines = std::fs::read_to_string(&settings).unwrap();
    lines.push_str("[gpg \"openpgp\"]\n\tprogram = /opt/other\n");
    std::fs::write(&settings, lines).unwrap();
    let by_file = cause(&mut doctor());
    assert!(by_file.contains("/opt/other"), "{by_file}");
    assert!(by_file.ends_with(&format!("{} sets that", settings.display())), "{by_file}");
}

#[test]
fn a_public_key_that_has_changed_is_sent_again() {
    let chain = Chain::new();
    chain.up();
    let key = chain.lab.host.fingerprint();
    run(&mut chain.lab.host.gpg(["--passphrase", "", "--quick-set-expire", &key, "2y"]));
    let fix = assert_first(&chain.json(), "public-keys");
    chain.run_as_printed(&fix);
    assert_clean(&chain.json());
}

#[test]
fn gpg_that_prints_nonsense_or_hangs_breaks_its_own_check_alone() {
    for (script, name) in [
        ("echo nonsense\n", "host-gpg"),
        ("exec sleep 600\n", "host-gpg"),
        ("exit 3\n", "host-gpg"),
    ] {
        let mut chain = Chain::new();
        chain.lab.put_before("gpg", script);
        let json = chain.json();
        assert_eq!(json["first"], name, "{script}: {json}");
        assert_eq!(outcome(&json, "target")["outcome"], "ok", "{json}");
    }
}

#[test]
fn a_target_that_hangs_is_given_up() {
    let chain = Chain::new();
    let said = output(&mut chain.keybridge(&["doctor", "--json", "exec:sh -c 'sleep 600' x"]));
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&json["first"], said.status.code()), (&"target".into(), Some(3)), "{json}");
    assert_eq!(outcome(&json, "helper")["because"], "target", "{json}");
}

#[test]
fn an_error_of_up_names_its_check() {
    let chain = Chain::new();
    for (words, check) in [
        (&["--lanes", "ssh"][..], "ssh-agent"),
        (&["--lend", "nobody@example.org"], "secret-keys"),
        (&["--gnupg-home", "/nonexistent"], "gpg-agent"),
    ] {
        let target = chain.target();
        let mut up = chain.keybridge(&["up", "--json", &target]);
        let said = output(up.args(words));
        let json: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(json["error"]["check"], check, "{json}");
        let hints = json["error"]["hints"].to_string();
        assert!(hints.contains(&format!("`keybridge doctor {target}`")), "{json}");
        assert!(hints.contains(&format!("`{check}`")), "{json}");
    }
}

#[test]
fn without_a_target_this_machine_and_the_bridges_are_checked() {
    let chain = Chain::new();
    chain.up();
    let said = output(&mut chain.keybridge(&["doctor", "--json", "--lanes", "gpg"]));
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_clean(&json);
    assert_eq!(json["bridges"][0]["target"], *chain.target(), "{json}");
    assert_eq!(json["bridges"][0]["state"], "ready", "{json}");
    let shown = text(&run(&mut chain.keybridge(&["doctor"])));
    assert!(shown.contains(&format!("→ keybridge doctor {}", chain.target())), "{shown}");
    assert_eq!(json["target"], Value::Null);
}
