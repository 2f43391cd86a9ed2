//! The lab of the ssh lane: a host with an ssh-agent of its own, and a container with a sshd inside.
//!
//! The container has no network: its
//! sshd listens on its own loopback, and the account there is another one than that of the bridge.

mod gpg_agent;
mod sshd;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use crate::lab::{Container, Docker, Image, output, run, text};
use keybridge_lab::{SshHome, program};

pub use gpg_agent::be_ssh_agent;
pub use sshd::{ACCOUNT, Sshd};

/// Whom the commits of the lab are by.
pub const EMAIL: &str = "lab@keybridge.example";

/// The user of a container that a bridge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    Root,
    Dev,
}

impl User {
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Dev => "dev",
        }
    }

    /// The user's folder in a container.
    pub fn home(self) -> &'static str {
        match self {
            Self::Root => "/root",
            Self::Dev => "/home/dev",
        }
    }
}

/// A host with an ssh-agent, a container, and whatever bridges are made between the two.
pub struct SshLab {
    // Before the agent: a bridge ends before what it leads to.
    pub docker: Docker,
    pub home: SshHome,
    pub user: User,
}

impl SshLab {
    /// A fresh container, and a host whose ssh-agent has one key.
    pub fn new(image: Image, user: User) -> Self {
        Self::with(image, &[], user, SshHome::with_key())
    }

    /// A container that is started with options, and a host with this ssh-agent.
    pub fn with(image: Image, options: &[&str], user: User, home: SshHome) -> Self {
        let mut docker = Docker::new(image, options);
        // ssh finds the settings of the machine's user whatever HOME says.
        let ssh = program("ssh");
        docker.lab.put_before("ssh", &format!("exec {} -F none \"$@\"", ssh.display()));
        Self { docker, home, user }
    }

    pub fn container(&self) -> &Container {
        &self.docker.container
    }

    /// `keybridge` where the ssh-agent is at hand.
    pub fn keybridge<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.docker.keybridge(words);
        command.env("SSH_AUTH_SOCK", self.home.socket());
        command
    }

    /// `keybridge up` for the container's user.
    pub fn up_command(&self, options: &[&str]) -> Command {
        let words = ["up", &self.container().name, "--user", self.user.name()];
        self.keybridge(words.into_iter().chain(options.iter().copied()))
    }

    /// Bridges the container, which has to work; gives back what was shown.
    #[track_caller]
    pub fn up(&self, options: &[&str]) -> String {
        text(&run(&mut self.up_command(options)))
    }

    /// `keybridge run` in the container.
    pub fn run_command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let start = ["run", &self.container().name, "--user", self.user.name(), "--"];
        let mut command = self.keybridge(start);
        command.args(words);
        command
    }

    /// Runs a command in the container with the agents at hand, which has to succeed.
    #[track_caller]
    pub fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        text(&run(&mut self.run_command(words)))
    }

    /// Runs a script with the agents at hand.
    pub fn try_run(&self, script: &str) -> Output {
        output(&mut self.run_command(["sh", "-c", script]))
    }

    /// Runs a script as the user, without anything that a bridge would have to set. It has to succeed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.container().sh(Some(self.user.name()), script)
    }

    /// Runs a script as the user that may fail.
    pub fn try_sh(&self, script: &str) -> Output {
        self.container().try_sh(Some(self.user.name()), script)
    }

    /// Writes a file as the user.
    #[track_caller]
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let script = format!("mkdir -p \"$(dirname {path})\"; cat >{path}");
        self.container().sh_with(Some(self.user.name()), &script, content.as_ref());
    }

    /// A file of the user's: its content, mode and owner.
    #[track_caller]
    pub fn file(&self, path: &str) -> (Vec<u8>, String) {
        let (user, script) = (Some(self.user.name()), format!("cat {path}"));
        let content = self.container().sh_with(user, &script, b"");
        (content, self.sh(&format!("stat -c '%a %U %G' {path}")))
    }

    /// Nothing came and nothing went since then, but for the helper's program, which stays for the next
    /// bridge.
    #[track_caller]
    pub fn assert_undone(&self, before: &BTreeSet<String>) {
        self.assert_undone_but(before, "/nothing");
    }

    /// The same, but for what is in a folder.
    #[track_caller]
    pub fn assert_undone_but(&self, before: &BTreeSet<String>, folder: &str) {
        let now = self.container().listing();
        let is_helper = |path: &&String| {
            let rest = path.split_once("/.cache").map(|(_, rest)| rest);
            rest.is_some_and(|rest| {
                rest.is_empty()
                    || rest == "/keybridge"
                    || rest.starts_with("/keybridge/keybridge-remote-")
            })
        };
        let is_ours = |path: &&String| !path.starts_with(folder) && !is_helper(path);
        let new: Vec<_> = now.difference(before).filter(is_ours).collect();
        let gone: Vec<_> = before.difference(&now).collect();
        assert!(new.is_empty() && gone.is_empty(), "left behind: {new:?}, gone: {gone:?}");
        assert_eq!(self.docker.helpers(), Vec::<String>::new());
    }

    /// A setting of git's, as it holds in a repository with a remote of the user's; empty if it isn't set.
    #[track_caller]
    pub fn git_setting(&self, name: &str) -> String {
        let set = self.sh(&format!(
            "folder=$(mktemp -d)
            git init --quiet \"$folder\"
            git -C \"$folder\" remote add origin https://git.example/x.git
            git -C \"$folder\" config {name} || true
            rm -rf \"$folder\""
        ));
        set.trim_end().to_owned()
    }

    /// The bridge, as `status --json` tells of it.
    #[track_caller]
    pub fn status(&self) -> Value {
        let bridges = self.docker.bridges();
        assert_eq!(bridges.len(), 1, "{bridges:?}");
        bridges[0].clone()
    }

    /// Where the ssh lane is in the container.
    #[track_caller]
    pub fn socket(&self) -> String {
        let status = self.status();
        let socket = status["lanes"]["ssh"]["socket"].as_str();
        socket.unwrap_or_else(|| panic!("no ssh lane: {status}")).to_owned()
    }

    /// The public half of a key at home: the type and the key itself.
    pub fn public_key(&self, name: &str) -> String {
        let line = std::fs::read_to_string(self.home.file(&format!("{name}.pub"))).unwrap();
        let fields: Vec<&str> = line.split_whitespace().take(2).collect();
        fields.join(" ")
    }

    /// Sets git up on the host, for the user that calls `keybridge`.
    pub fn git_at_home(&self, settings: &[(&str, &str)]) {
        let file = self.docker.lab.at("home/.gitconfig");
        for (name, value) in settings {
            run(self.home.command("git").args(["config", "--file"]).arg(&file).args([name, value]));
        }
    }
}

/// What a command complained about, which must not have succeeded.
#[track_caller]
pub fn complaint(output: &Output) -> String {
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{}{said}", text(&output.stdout));
    said
}
