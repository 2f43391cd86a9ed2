//! A GnuPG home and the programs that work on it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{eventually, output, run, text};

/// Who the keys of the lab belong to.
pub const USER: &str = "Lab <lab@keybridge.example>";

/// What programs other than the bridge find in their environment.
#[derive(Debug, Clone)]
pub struct Environment {
    home: PathBuf,
    tmp: PathBuf,
}

impl Environment {
    pub fn new(folder: &Path) -> Self {
        Self { home: folder.join("home"), tmp: folder.join("tmp") }
    }
}

/// A GnuPG home.
pub struct Home {
    path: PathBuf,
    environment: Environment,
}

impl Home {
    pub fn new(path: PathBuf, environment: Environment) -> Self {
        Self { path, environment }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where gpg looks for its agent.
    pub fn socket(&self) -> PathBuf {
        self.at("S.gpg-agent")
    }

    /// The agent's restricted socket.
    pub fn extra_socket(&self) -> PathBuf {
        self.at("S.gpg-agent.extra")
    }

    /// A program that works on this home.
    pub fn command(&self, program: &str) -> Command {
        let mut command = keybridge_lab::command(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.environment.home)
            .env("TMPDIR", &self.environment.tmp)
            .env("LC_ALL", "C")
            .env("GNUPGHOME", &self.path);
        command
    }

    /// gpg, which has nobody to ask.
    pub fn gpg<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command("gpg");
        command.args(["--batch", "--no-tty", "--yes"]).args(arguments);
        command
    }

    /// `gpg-connect-agent` with these commands; what it printed.
    pub fn connect_agent(&self, commands: &[&str]) -> String {
        let mut command = self.command("gpg-connect-agent");
        command.arg("--no-autostart").args(commands);
        let output = output(&mut command);
        text(&output.stdout) + &text(&output.stderr)
    }

    /// A key that signs, with a subkey that decrypts.
    pub fn make_key(&self) {
        self.quick_gen_key("future-default", "default");
    }

    /// A primary key that only certifies, a subkey that signs and one that decrypts.
    pub fn make_certify_only_key(&self) {
        self.quick_gen_key("ed25519", "cert");
        let fingerprint = self.fingerprint();
        for (algorithm, usage) in [("ed25519", "sign"), ("cv25519", "encr")] {
            let words =
                ["--passphrase", "", "--quick-add-key", &fingerprint, algorithm, usage, "never"];
            run(&mut self.gpg(words));
        }
    }

    fn quick_gen_key(&self, algorithm: &str, usage: &str) {
        let words = ["--passphrase", "", "--quick-gen-key", USER, algorithm, usage, "never"];
        run(&mut self.gpg(words));
    }

    /// The fingerprint of the first key.
    pub fn fingerprint(&self) -> String {
        self.listed("fpr").remove(0)
    }

    /// The fingerprints of the first key and its subkeys, in order.
    pub fn fingerprints(&self) -> Vec<String> {
        self.listed("fpr")
    }

    /// The keygrips of the first key and its subkeys, in order.
    pub fn keygrips(&self) -> Vec<String> {
        self.listed("grp")
    }

    fn listed(&self, record: &str) -> Vec<String> {
        let listing = run(&mut self.gpg(["--list-keys", "--with-keygrip", "--with-colons"]));
        text(&listing)
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .filter(|fields| fields[0] == record)
            .map(|fields| fields[9].to_owned())
            .collect()
    }

    /// Starts the agent of this home.
    pub fn launch_agent(&self) {
        run(self.command("gpgconf").args(["--launch", "gpg-agent"]));
    }

    /// The process of the agent of this home.
    pub fn agent_pid(&self) -> u32 {
        let answer = self.connect_agent(&["GETINFO pid", "/bye"]);
        let pid = answer.lines().find_map(|line| line.strip_prefix("D ")?.trim().parse().ok());
        pid.unwrap_or_else(|| panic!("no agent says its pid: {answer}"))
    }

    /// Ends every daemon of this home, and waits until the agent is gone.
    pub fn end_agents(&self) {
        if !self.path.is_dir() {
            return;
        }
        let _ = self.command("gpgconf").args(["--kill", "all"]).output();
        if !std::thread::panicking() {
            let socket = self.socket();
            eventually("the agent has ended", || {
                std::os::unix::net::UnixStream::connect(&socket).is_err()
            });
        }
    }
}
