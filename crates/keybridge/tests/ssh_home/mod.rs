//! A real ssh-agent of a test's own, its keys, and the programs that ask it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that lacks a part fails")]

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use keybridge::agent::{SshDialer, SshPlaces};
use tempfile::TempDir;

/// Longer than anything takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with an agent's socket and keys, removed at its end together with the agent.
pub struct SshHome {
    dir: TempDir,
    agent: RefCell<Option<Child>>,
}

impl SshHome {
    /// A folder without an agent, under a path that is short enough for sockets.
    pub fn new() -> Self {
        let dir = keybridge_lab::short_folder("kbs");
        Self { dir, agent: RefCell::default() }
    }

    /// An agent with one key, `key`.
    pub fn with_key() -> Self {
        let home = Self::new();
        home.start();
        home.make_key("key");
        home.add(&["key"]);
        home
    }

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
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    /// Starts the agent. It asks whatever it has to ask by the program `askpass` of this folder.
    pub fn start(&self) {
        self.start_at(&self.socket());
    }

    pub fn start_at(&self, socket: &Path) {
        let _ = std::fs::remove_file(socket);
        let agent = self.command("ssh-agent").arg("-D").arg("-a").arg(socket).spawn().unwrap();
        *self.agent.borrow_mut() = Some(agent);
        wait_until("the agent listens", || UnixStream::connect(socket).is_ok());
    }

    pub fn agent_pid(&self) -> u32 {
        self.agent.borrow().as_ref().unwrap().id()
    }

    pub fn signal_agent(&self, signal: &str) {
        let status =
            keybridge_lab::command("kill").args([signal, &self.agent_pid().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Ends the agent, whatever it does, and leaves its socket as a dead one.
    pub fn kill(&self) {
        if let Some(mut agent) = self.agent.borrow_mut().take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    pub fn make_key(&self, name: &str) {
        let file = self.file(name);
        let file = file.to_str().unwrap();
        self.ok("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file]);
    }

    /// Runs `ssh-add` at home; names of files are those of this folder.
    pub fn add(&self, arguments: &[&str]) {
        self.ok("ssh-add", arguments);
    }

    /// What the agent has, by the word of `ssh-add -l`.
    pub fn keys(&self) -> String {
        let output = self.command("ssh-add").arg("-l").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn ok(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
    }

    /// A program in this folder, with this agent and nothing else of the machine's user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = keybridge_lab::command(program);
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

    /// Places with this agent alone.
    pub fn places(&self) -> SshPlaces {
        SshPlaces {
            setting: None,
            auth_sock: Some(self.socket()),
            ssh: "/nonexistent/ssh".into(),
            gnupg: None,
        }
    }

    pub fn dialer(&self) -> SshDialer {
        SshDialer::new(self.places())
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

/// Runs a program to its end while everything else in the test goes on.
pub async fn output(command: Command) -> Output {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true).output().await.unwrap()
}

/// What a program complained about.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
