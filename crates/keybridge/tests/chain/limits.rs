//! Limits of the host's process.

use std::process::Command;

use crate::lab::{self, Bridge, Client, Lab, run};
use crate::settings::Scene;

/// More than the limit of the shell below allows.
const CLIENTS: usize = 150;

/// `keybridge up` by a shell with these limits.
fn up_limited(lab: &Lab, limits: &str, arguments: &[&str]) -> Bridge {
    let up = lab.up_command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]);
    shell.arg(up.get_program()).args(up.get_args()).env_clear();
    shell.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Bridge::start(shell)
}

/// The soft limit of a process, as the kernel tells it.
fn limit(pid: u32, name: &str) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn there_are_no_core_dumps_and_descriptors_for_all_sessions() {
    let lab = Lab::with_key();
    let limits = "ulimit -S -c unlimited; ulimit -S -n 100";
    let bridge = up_limited(&lab, limits, &["--max-sessions", "200"]);
    let pid = bridge.host_pid();
    assert_eq!(limit(pid, "Max core file size"), "1");
    // As many as are needed, and no more: what is started from here gets the same.
    assert_eq!(limit(pid, "Max open files"), (2 * 200 + 256).to_string());
    let socket = lab.target.path().join("S.gpg-agent");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::greeted(&socket)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("GETINFO version"), lab::version_answer());
    }
    drop(clients);
    bridge.stop();
}

#[test]
fn a_limit_that_is_large_enough_stays() {
    let lab = Lab::with_key();
    let bridge = up_limited(&lab, "ulimit -S -n 1000", &["--max-sessions", "100"]);
    assert_eq!(limit(bridge.host_pid(), "Max open files"), "1000");
    bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_bridge_in_the_background_keeps_nothing_open_that_up_has_inherited() {
    let scene = Scene::new();
    let held = scene.lab.at("held");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 7>\"$0\" 8<&7 \"$@\""]).arg(&held);
    let up = scene.lab.keybridge();
    shell.arg(up.get_program()).args(["up", &scene.address]).env_clear();
    shell.envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run(shell.env("XDG_RUNTIME_DIR", scene.lab.at("run")));
    let open = format!("/proc/{}/fd", scene.status()["pid"]);
    let open = std::fs::read_dir(open).unwrap().flatten();
    let inherited =
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == held));
    assert_eq!(inherited.count(), 0);
}
