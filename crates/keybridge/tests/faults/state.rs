//! What is left of bridges that did not end well, or that were of another version: it is in nobody's way,
//! and no stranger gets a signal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::faults::processes;
use crate::lab::{
    Lab, eventually, is_alive, leave_dead_socket, local, make_private, run, run_with, signal, text,
};

/// A host with a second home, and a folder for the state of its bridges.
struct Host {
    lab: Lab,
}

impl Host {
    fn new() -> Self {
        Self { lab: Lab::with_key() }
    }

    fn state(&self) -> PathBuf {
        self.lab.at("state")
    }

    fn target(&self) -> String {
        local(self.lab.target.path())
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        // A helper that nobody waits for is not to stay for long.
        command.env("KEYBRIDGE_STATE", self.state()).env("KEYBRIDGE_OUTLIVE", "2").args(words);
        command
    }

    fn up(&self) -> u32 {
        run(&mut self.keybridge(&["up", &self.target()]));
        let bridges = self.bridges();
        let [bridge] = bridges.as_slice() else { panic!("one bridge is expected: {bridges:?}") };
        assert_eq!(bridge["state"], "ready", "{bridge}");
        bridge["pid"].as_u64().unwrap().try_into().unwrap()
    }

    fn bridges(&self) -> Vec<Value> {
        let status = run(&mut self.keybridge(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"].as_array().unwrap().clone()
    }

    fn signs(&self) {
        run_with(&mut self.lab.target.gpg(["--detach-sign"]), b"words");
    }

    /// The folders of bridges.
    fn folders(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state()).unwrap().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    /// The bridge is up, works, and goes down, whatever is in the folder of its state.
    fn works(&self) {
        let pid = self.up();
        self.signs();
        let shown = text(&run(&mut self.keybridge(&["status"])));
        assert!(shown.contains("ready"), "{shown}");
        run(&mut self.keybridge(&["down", &self.target()]));
        eventually("the bridge has ended", || !is_alive(pid));
        assert_eq!(self.bridges(), Vec::<Value>::new());
        run(&mut self.keybridge(&["down", "--all"]));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for pid in processes::of_bridges(&self.state()) {
            signal(pid, Signal::KILL);
        }
    }
}

/// Kills a bridge, which has no chance to clear up.
fn kill(pid: u32) {
    signal(pid, Signal::KILL);
    eventually("the bridge has ended", || !is_alive(pid));
}

/// A process that no bridge has anything to do with.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        Self(keybridge_lab::command("sleep").arg("infinity").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Nobody has sent it a signal: one that it took would have ended it.
    #[track_caller]
    fn assert_unharmed(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "a stranger got a signal");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts a number in the place of another one wherever a file of a folder begins with it.
fn replace_number(folder: &Path, old: u32, new: u32) {
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        let content = fs::read_to_string(&path).unwrap_or_default();
        let mut words = content.splitn(2, char::is_whitespace);
        if path.is_file() && words.next() == Some(&old.to_string()) {
            let rest = words.next().unwrap_or_default();
            fs::write(&path, format!("{new}\n{rest}")).unwrap();
        }
    }
}

#[test]
fn what_another_version_left_in_the_state_folder_is_in_nobody_s_way() {
    let host = Host::new();
    let mut stranger = Stranger::start();
    // A folder of the target's own, and others that no version of ours knows.
    let pid = host.up();
    let own = host.folders().remove(0);
    kill(pid);
    make_private(&host.state().join("0123456789abcdef"));
    make_private(&host.state().join("of-another-kind"));
    for folder in host.folders() {
        for name in ["pid", "bridge.json", "state", "lock.pid"] {
            fs::write(folder.join(name), format!("{}\n", stranger.pid())).unwrap();
        }
        make_private(&folder.join("folder"));
    }
    fs::write(host.state().join("version"), "0\n").unwrap();
    fs::write(host.state().join("0123456789abcdef/lock"), stranger.pid().to_string()).unwrap();
    fs::write(host.state().join("of-another-kind/control"), "no socket").unwrap();
    fs::remove_file(own.join("target")).unwrap();
    assert_eq!(host.bridges(), Vec::<Value>::new());
    host.works();
    stranger.assert_unharmed();
}

#[test]
fn a_lock_and_a_socket_without_a_process_are_used_again() {
    let host = Host::new();
    let pid = host.up();
    let own = host.folders().remove(0);
    kill(pid);
    // A socket that is there and that nobody listens at.
    let control = own.join("control");
    let _ = fs::remove_file(&control);
    leave_dead_socket(&control);
    assert!(own.join("lock").exists());
    assert_eq!(host.bridges(), Vec::<Value>::new());
    run(&mut host.keybridge(&["down", &host.target()]));
    host.works();
}

#[test]
fn a_pid_that_was_used_again_gets_no_signal() {
    let host = Host::new();
    let mut stranger = Stranger::start();
    host.up();
    let own = host.folders().remove(0);
    // Bridge and helper, at one stroke as far as they can tell: neither clears up.
    let killed = processes::of_bridges(&host.state());
    assert_eq!(killed.len(), 2, "a bridge and its helper");
    for by in [Signal::STOP, Signal::KILL] {
        for &pid in &killed {
            signal(pid, by);
        }
    }
    eventually("both have ended", || !killed.iter().any(|&pid| is_alive(pid)));
    for &pid in &killed {
        replace_number(&own, pid, stranger.pid());
        replace_number(host.lab.target.path(), pid, stranger.pid());
    }
    fs::write(own.join("lock"), format!("{}\n", stranger.pid())).unwrap();
    assert_eq!(host.bridges(), Vec::<Value>::new());
    host.works();
    stranger.assert_unharmed();
    run(&mut host.keybridge(&["down", &host.target()]));
    run(&mut host.keybridge(&["down", "--all"]));
    stranger.assert_unharmed();
}

#[test]
fn a_helper_on_this_machine_ends_after_its_bridge_was_killed() {
    let host = Host::new();
    let pid = host.up();
    assert_eq!(processes::of_bridges(&host.state()).len(), 2, "a bridge and its helper");
    kill(pid);
    let socket = host.lab.target.socket();
    eventually("the helper has ended", || processes::of_bridges(&host.state()).is_empty());
    assert!(!socket.exists(), "its socket is gone");
    let config = fs::read_to_string(host.lab.target.file("gpg.conf")).unwrap_or_default();
    assert!(!config.contains("keybridge"), "{config}");
    host.works();
}
