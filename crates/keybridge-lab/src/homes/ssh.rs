//! A real ssh-agent of a test's own, its keys, and the programs that ask it.

use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{command, eventually, short_folder, signal, write_program};

/// A folder with an agent's socket and keys, removed at its end together with the agent.
pub struct SshHome {
    dir: TempDir,
    agent: RefCell<Option<Child>>,
}

impl SshHome {
    /// A folder without an agent, under a path that is short enough for sockets.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let dir = short_folder("kbs");
        Self { dir, agent: RefCell::default() }
    }

    /// An agent without keys.
    pub fn started() -> Self {
        let home = Self::new();
        home.start();
        home
    }

    /// An agent with one key, `key`.
    pub fn with_key() -> Self {
        let home = Self::started();
        home.make_key("key");
        home.add(&["key"]);
        home
    }

    /// A path in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the agent listens.
    pub fn socket(&self) -> PathBuf {
        self.file("agent.sock")
    }

    /// Writes a program.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        write_program(&path, format!("#!/bin/sh\n{text}\n"));
        path
    }

    /// Starts the agent. It asks whatever it has to ask by the program `askpass` of this folder.
    pub fn start(&self) {
        self.start_at(&self.socket());
    }

    /// Starts the agent at another place.
    pub fn start_at(&self, socket: &Path) {
        let _ = std::fs::remove_file(socket);
        let agent = self.command("ssh-agent").arg("-D").arg("-a").arg(socket).spawn().unwrap();
        *self.agent.borrow_mut() = Some(agent);
        eventually("the agent listens", || UnixStream::connect(socket).is_ok());
    }

    /// The process of the agent.
    pub fn agent_pid(&self) -> u32 {
        self.agent.borrow().as_ref().unwrap().id()
    }

    /// Sends a signal to the agent.
    pub fn signal_agent(&self, with: Signal) {
        signal(self.agent_pid(), with);
    }

    /// Ends the agent, whatever it does, and leaves its socket as a dead one.
    pub fn kill(&self) {
        if let Some(mut agent) = self.agent.borrow_mut().take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Makes a key in a file of this name, which is its comment too.
    pub fn make_key(&self, name: &str) {
        let file = self.file(name);
        let file = file.to_str().unwrap();
        self.ok("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file]);
    }

    /// The public half of a key: its type, the key and its name.
    pub fn public_key(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(&format!("{name}.pub"))).unwrap()
    }

    /// Runs `ssh-add` at home; names of files are those of this folder.
    pub fn add(&self, arguments: &[&str]) {
        self.ok("ssh-add", arguments);
    }

    /// The agent's keys, as `ssh-add -l` lists them.
    pub fn keys(&self) -> String {
        let output = self.command("ssh-add").arg("-l").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a program that has to succeed.
    #[track_caller]
    pub fn ok(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
    }

    /// A program in this folder, with this agent and nothing else of the machine's user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("SSH_AUTH_SOCK", self.socket())
            .env("SSH_ASKPASS", self.file("askpass"))
            .env("SSH_ASKPASS_REQUIRE", "force")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A pipe that a program can be made to wait on.
    pub fn make_fifo(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        self.ok("mkfifo", &[path.to_str().unwrap()]);
        path
    }
}

impl Drop for SshHome {
    fn drop(&mut self) {
        self.kill();
    }
}
