//! A second command never lends more, or something else, without a word.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use keybridge_lab::SshHome;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lab::{self, eventually, is_alive, need_root, output, signal, text, write_program};
use crate::settings::Scene;

/// A home that a command leads to, in a mount namespace of its own: a `local:` target has no ssh lane.
pub(crate) struct Far {
    pub(crate) scene: Scene,
    pub(crate) address: String,
}

impl Far {
    pub(crate) fn new() -> Self {
        need_root();
        let scene = Scene::new();
        let home = scene.lab.at("far");
        lab::make_private(&home);
        lab::make_private(&home.join(".gnupg"));
        let program = scene.lab.at("bin/far");
        // The ssh lane is in the user's own home, whatever `HOME` says.
        let enter = format!("mount --bind {} ~root && HOME=~root exec \"$@\"", home.display());
        write_program(
            &program,
            format!("#!/bin/sh\nunset GNUPGHOME\nexec unshare -m sh -c '{enter}' sh \"$@\"\n"),
        );
        Self { address: format!("exec:{}", program.display()), scene }
    }

    /// A command of somebody with this `SSH_AUTH_SOCK`.
    pub(crate) fn keybridge(&self, auth_sock: Option<&Path>, words: &[&str]) -> Output {
        output(self.command(auth_sock).args(words))
    }

    fn command(&self, auth_sock: Option<&Path>) -> Command {
        let mut command = self.scene.lab.keybridge();
        command.env("XDG_RUNTIME_DIR", self.scene.lab.at("run"));
        command.envs(auth_sock.map(|path| ("SSH_AUTH_SOCK", path)));
        command
    }

    /// What `up` has said, which has to succeed.
    #[track_caller]
    pub(crate) fn up(&self, auth_sock: Option<&Path>, options: &[&str]) -> String {
        let ended = self.keybridge(auth_sock, &[&["up", &self.address], options].concat());
        assert!(ended.status.success(), "{options:?}: {}", text(&ended.stderr));
        text(&ended.stdout)
    }

    /// Runs `ssh-add -l` in the target.
    pub(crate) fn list(&self, auth_sock: Option<&Path>, options: &[&str]) -> Output {
        let command = ["--", "ssh-add", "-l"];
        self.keybridge(auth_sock, &[&["run", &self.address], options, &command].concat())
    }

    pub(crate) fn status(&self) -> Value {
        self.scene.status_of(&self.address)
    }
}

/// An agent with one key of this name.
pub(crate) fn agent_with(key: &str) -> SshHome {
    let home = SshHome::started();
    home.make_key(key);
    home.add(&[key]);
    home
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn run_never_changes_what_a_bridge_that_is_up_lends() {
    let far = Far::new();
    let (first, other) = (agent_with("first-key"), agent_with("other-key"));
    let ended = far.list(Some(&first.socket()), &[]);
    let said = text(&ended.stderr);
    assert!(text(&ended.stdout).contains("first-key"), "{said}");
    assert!(said.contains("is bridged now, and stays so (lent: "), "{said}");
    let before = far.status();
    for auth_sock in [Some(other.socket()), None, Some(far.scene.lab.at("stale"))] {
        let ended = far.list(auth_sock.as_deref(), &["--ssh-keys", "other-key", "--outlive=77"]);
        assert!(text(&ended.stdout).contains("first-key"), "{auth_sock:?}: {ended:?}");
        assert!(text(&ended.stderr).contains("keeps its ssh-keys, outlive"), "{ended:?}");
    }
    let after = far.status();
    for unchanged in ["pid", "reconnects", "lending", "ssh_keys"] {
        assert_eq!(after[unchanged], before[unchanged], "{unchanged}");
    }
    // A lane that was lost stays so, too.
    first.kill();
    far.up(Some(&first.socket()), &["--outlive", "88"]);
    first.start();
    first.add(&["first-key"]);
    let before = far.status();
    assert_eq!(before["lanes"]["ssh"], Value::Null, "{before}");
    far.list(Some(&first.socket()), &[]);
    let after = far.status();
    for unchanged in ["pid", "reconnects"] {
        assert_eq!(after[unchanged], before[unchanged], "{unchanged}");
    }
    assert_eq!(after["lanes"]["ssh"], Value::Null, "{after}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn up_never_trades_an_agent_that_answers_for_one_that_does_not() {
    let far = Far::new();
    let (first, other) = (agent_with("first-key"), agent_with("other-key"));
    let listed = || text(&far.list(None, &[]).stdout);
    far.up(Some(&first.socket()), &[]);
    let shown = far.up(None, &[]);
    assert!(!shown.contains("changed") && listed().contains("first-key"), "{shown}");
    // A new link looks for the agents again.
    let shown = far.up(Some(&far.scene.lab.at("stale")), &["--outlive", "77"]);
    assert!(shown.contains("no ssh-agent answers at") && !shown.contains("ssh-agent; "), "{shown}");
    assert!(listed().contains("first-key"), "{shown}");
    let shown = far.up(Some(&other.socket()), &[]);
    assert!(shown.contains("; changed: ssh-agent"), "{shown}");
    assert!(listed().contains("other-key"), "{shown}");
}

/// The bridge that `up --json` has printed.
fn printed(ended: &Output) -> Value {
    let printed: Value = serde_json::from_slice(&ended.stdout).unwrap();
    printed["bridges"][0].clone()
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn no_program_is_left_without_a_word_of_another_ssh_agent() {
    let far = Far::new();
    let (first, other) = (agent_with("first-key"), agent_with("other-key"));
    let (stale, up) = (far.scene.lab.at("stale"), ["up", &far.address, "--json"]);
    let new = printed(&far.keybridge(Some(&first.socket()), &up));
    assert_eq!(new["changed"], json!([]), "{new}");
    let told = printed(&far.keybridge(Some(&stale), &up));
    let warning = told["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("keeps the one that it has"), "{told}");
    let told = printed(&far.keybridge(Some(&other.socket()), &up));
    assert_eq!(told["changed"], json!(["ssh-agent"]), "{told}");
    kill(far.status()["pid"].as_u64());
    let told = printed(&far.keybridge(Some(&first.socket()), &up));
    assert_eq!(told["changed"], json!(["ssh-agent"]), "{told}");
}

#[test]
fn no_program_or_person_is_left_without_a_word_of_what_another_up_lends() {
    let scene = Scene::new();
    let up = |options: &[&str]| {
        let ended = scene.try_keybridge(&[&["up", &scene.address, "--json"], options].concat());
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        printed(&ended)
    };
    up(&["--uses", "sign"]);
    assert_eq!(up(&["--uses", "sign,decrypt"])["changed"], json!(["uses", "1 new key is lent"]));
    scene.lab.host.add_key("new@x");
    let shown = scene.up(&[]);
    assert!(shown.contains("; changed: 1 new key is lent"), "{shown}");
    scene.lab.host.add_key("other@x");
    assert_eq!(up(&[])["changed"], json!(["1 new key is lent"]));
    assert_eq!(up(&[])["changed"], json!([]));
    kill(scene.status()["pid"].as_u64());
    let told = up(&[]);
    let warning = told["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("its settings are taken: uses"), "{told}");
}

fn kill(pid: Option<u64>) {
    let pid = u32::try_from(pid.unwrap()).unwrap();
    signal(pid, Signal::KILL);
    eventually("the process has ended", || !is_alive(pid));
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_lane_that_was_lost_never_stays_away_after_another_up() {
    let far = Far::new();
    let agent = agent_with("a-key");
    let socket = agent.socket();
    far.up(Some(&socket), &[]);
    agent.kill();
    far.up(Some(&socket), &["--outlive", "77"]);
    assert_eq!(far.status()["lanes"]["ssh"], Value::Null);
    agent.start();
    agent.add(&["a-key"]);
    let shown = far.up(Some(&socket), &[]);
    assert!(shown.contains("the ssh lane is back"), "{shown}");
    assert!(text(&far.list(None, &[]).stdout).contains("a-key"), "{shown}");
    // Nothing is lost now.
    let shown = far.up(Some(&socket), &[]);
    assert!(!shown.contains("changed"), "{shown}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn who_lends_one_key_never_lends_the_ssh_agent_too() {
    let far = Far::new();
    let agent = agent_with("a-key");
    let key = far.scene.lab.host.fingerprint();
    let shown = far.up(Some(&agent.socket()), &["--lend", &format!("{key}!")]);
    assert!(shown.contains("lent: 1 key of gpg-agent (sign, decrypt)\n"), "{shown}");
    assert_eq!(far.status()["lanes"]["ssh"], Value::Null);
    let status = text(&far.keybridge(None, &["status"]).stdout);
    assert!(status.contains("lent: 1 key of gpg-agent (sign, decrypt)\n"), "{status}");
    let shown = far.up(Some(&agent.socket()), &["--ssh-keys", "a-*"]);
    assert!(shown.contains("of the ssh-agent's keys a-*"), "{shown}");
    assert!(text(&far.list(None, &[]).stdout).contains("a-key"));
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn an_up_never_lends_more_before_all_of_it_is_known_to_be_right() {
    let far = Far::new();
    let agent = agent_with("a-key");
    let key = far.scene.lab.host.fingerprint();
    let new = ["--passphrase", "", "--quick-gen-key", "another@x", "ed25519", "sign", "never"];
    lab::run(&mut far.scene.lab.host.gpg(new));
    far.up(Some(&agent.socket()), &["--lanes", "gpg,ssh", "--lend", &key]);
    let keys = || far.status()["lanes"]["gpg"]["keys"].clone();
    let before = keys();
    // In place of the agent, which answers nothing.
    agent.kill();
    let _ = std::fs::remove_file(agent.socket());
    let listener = UnixListener::bind(agent.socket()).unwrap();
    let more = format!("{key},another@x");
    let mut up = far.command(Some(&agent.socket()));
    up.args(["up", &far.address, "--lend", &more, "--ssh-keys", "other-*"]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (asked, _) = listener.accept().unwrap();
    assert_eq!(keys(), before);
    std::fs::remove_file(agent.socket()).unwrap();
    drop((asked, listener));
    up.wait().unwrap();
}

#[test]
fn an_up_after_a_kill_never_lends_more_than_the_bridge_that_was_killed() {
    let scene = Scene::new();
    let key = scene.lab.host.fingerprint();
    let kill = || kill(scene.status()["pid"].as_u64());
    scene.up(&["--lend", &format!("{key}!")]);
    // What another `up` has changed counts.
    scene.up(&["--uses", "sign"]);
    let before = scene.status();
    kill();
    let shown = scene.up(&[]);
    assert!(shown.contains("was killed; its settings are taken: lend, uses"), "{shown}");
    assert_eq!(scene.status()["lending"], before["lending"]);
    kill();
    scene.up(&["--uses", "decrypt"]);
    assert_eq!(scene.status()["lending"]["uses"], json!(["decrypt"]));
    assert_eq!(scene.status()["lending"]["lend"], before["lending"]["lend"]);
    // Who ends it starts anew.
    kill();
    scene.keybridge(&["down", &scene.address]);
    scene.up(&[]);
    assert_eq!(scene.status()["lending"]["lend"], Value::Null);
}

#[test]
fn a_fix_that_nobody_agreed_to_never_forgets_what_a_bridge_that_was_killed_lent() {
    let scene = Scene::new();
    scene.up(&["--uses", "sign"]);
    kill(scene.status()["pid"].as_u64());
    let fixed = scene.try_keybridge(&["doctor", "--fix", "--yes"]);
    let said = text(&fixed.stdout);
    assert!(said.contains(&format!("keybridge down {}", scene.address)), "it is shown: {said}");
    let shown = scene.up(&[]);
    assert!(shown.contains("was killed; its settings are taken: uses"), "{said}{shown}");
}

#[test]
fn an_up_that_fails_after_a_kill_never_has_the_next_command_lend_more_or_leave_changes() {
    let scene = Scene::new();
    let key = scene.lab.host.fingerprint();
    scene.up(&["--lend", &format!("{key}!"), "--uses", "sign"]);
    let before = scene.status();
    let kill_and_fail = || {
        kill(scene.status()["pid"].as_u64());
        let refused = scene.try_keybridge(&["up", &scene.address, "--lend", "0123456789ABCDEF!"]);
        assert!(text(&refused.stderr).contains("0123456789ABCDEF!"), "{}", text(&refused.stderr));
    };
    kill_and_fail();
    let shown = scene.up(&[]);
    assert!(shown.contains("was killed; its settings are taken: lend, uses"), "{shown}");
    assert_eq!(scene.status()["lending"], before["lending"]);
    kill_and_fail();
    let shown = scene.keybridge(&["down", &scene.address]);
    assert!(shown.contains("its bridge is gone; undone"), "{shown}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn no_command_after_a_kill_trades_the_ssh_agent_without_a_word() {
    let far = Far::new();
    let (first, other) = (agent_with("first-key"), agent_with("other-key"));
    let kill = || kill(far.status()["pid"].as_u64());
    let listed = || text(&far.list(None, &[]).stdout);
    far.up(Some(&first.socket()), &[]);
    kill();
    let ended = far.list(Some(&other.socket()), &[]);
    assert!(text(&ended.stdout).contains("first-key"), "{ended:?}");
    kill();
    let shown = far.up(Some(&far.scene.lab.at("stale")), &[]);
    assert!(shown.contains("no ssh-agent answers at"), "{shown}");
    assert!(listed().contains("first-key"), "{shown}");
    kill();
    let shown = far.up(Some(&other.socket()), &[]);
    assert!(shown.contains("changed: ssh-agent"), "{shown}");
    assert!(listed().contains("other-key"), "{shown}");
}
