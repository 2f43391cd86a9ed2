//! A GnuPG home and the programs that work on it.

use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{command, eventually, output, run, short_folder, signal, text, within};

/// Who the keys of the lab belong to.
pub const USER: &str = "Lab <lab@keybridge.example>";

/// How long daemons may take to end.
const KILL_TIME: Duration = Duration::from_secs(3);

/// A GnuPG home. Its daemons end with it.
pub struct Home {
    path: PathBuf,
    /// What programs find as the user's home and as the folder for temporary files.
    environment: [(&'static str, PathBuf); 2],
    sockets: OnceLock<[PathBuf; 2]>,
    /// An agent that was stopped, and so doesn't react to SIGTERM.
    stopped: Mutex<Option<u32>>,
    #[allow(dead_code, reason = "it is removed with the home")]
    folder: Option<TempDir>,
}

impl Home {
    /// An empty home in a folder of its own.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = short_folder("kbh");
        let mut home = Self::at(folder.path().to_owned(), "/nonexistent".into(), "/tmp".into());
        home.folder = Some(folder);
        home
    }

    /// A home with one key pair that signs.
    pub fn with_key(user: &str) -> Self {
        let home = Self::new();
        home.add_key(user);
        home
    }

    /// A home with a key that signs and a subkey that decrypts.
    pub fn with_decrypting_key(user: &str) -> Self {
        let home = Self::new();
        home.quick_gen_key(user, "future-default", "default");
        home
    }

    /// A home in a folder that somebody else makes and removes, whose programs find these folders.
    pub fn at(path: PathBuf, user_home: PathBuf, tmp: PathBuf) -> Self {
        let environment = [("HOME", user_home), ("TMPDIR", tmp)];
        Self {
            path,
            environment,
            sockets: OnceLock::new(),
            stopped: Mutex::default(),
            folder: None,
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where gpg looks for its agent.
    pub fn socket(&self) -> PathBuf {
        self.sockets()[0].clone()
    }

    /// The agent's restricted socket.
    pub fn extra_socket(&self) -> PathBuf {
        self.sockets()[1].clone()
    }

    /// Whether there is a socket where gpg looks for its agent.
    pub fn has_socket(&self) -> bool {
        std::fs::symlink_metadata(self.socket()).is_ok_and(|file| file.file_type().is_socket())
    }

    /// The sockets are in the home, or in a folder below `/run/user` where there is one.
    fn sockets(&self) -> &[PathBuf; 2] {
        self.sockets.get_or_init(|| {
            // It fails where there is no `/run/user`.
            let _ = output(self.command("gpgconf").arg("--create-socketdir"));
            ["agent-socket", "agent-extra-socket"].map(|name| self.dirs(name))
        })
    }

    /// A path that gpgconf tells.
    pub fn dirs(&self, name: &str) -> PathBuf {
        text(&run(self.command("gpgconf").args(["--list-dirs", name]))).trim_end().into()
    }

    /// A program that works on this home, with nothing of the machine's user in its environment.
    #[track_caller]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(self.environment.iter().map(|(name, path)| (name, path)))
            .env("LC_ALL", "C")
            .env("GNUPGHOME", &self.path);
        command
    }

    /// gpg, which can't ask for a passphrase.
    #[track_caller]
    pub fn gpg<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command("gpg");
        command.args(["--batch", "--no-tty", "--yes"]).args(arguments);
        command
    }

    /// Runs a program that has to succeed.
    #[track_caller]
    pub fn ok(&self, program: &str, arguments: &[&str]) -> Output {
        let output = output(self.command(program).args(arguments));
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
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
        self.quick_gen_key(USER, "future-default", "default");
    }

    /// A primary key that only certifies, a subkey that signs and one that decrypts.
    pub fn make_certify_only_key(&self) {
        self.quick_gen_key(USER, "ed25519", "cert");
        let fingerprint = self.fingerprint();
        for (algorithm, usage) in [("ed25519", "sign"), ("cv25519", "encr")] {
            let words =
                ["--passphrase", "", "--quick-add-key", &fingerprint, algorithm, usage, "never"];
            run(&mut self.gpg(words));
        }
    }

    /// A key of somebody that signs.
    pub fn add_key(&self, user: &str) {
        self.quick_gen_key(user, "ed25519", "sign");
    }

    fn quick_gen_key(&self, user: &str, algorithm: &str, usage: &str) {
        let words = ["--passphrase", "", "--quick-gen-key", user, algorithm, usage, "never"];
        run(&mut self.gpg(words));
    }

    /// The fingerprint of the first key.
    pub fn fingerprint(&self) -> String {
        self.listed("", "fpr").remove(0)
    }

    /// The fingerprints of the first key and its subkeys, in order.
    pub fn fingerprints(&self) -> Vec<String> {
        self.listed("", "fpr")
    }

    /// The keygrips of the first key and its subkeys, in order.
    pub fn keygrips(&self) -> Vec<String> {
        self.listed("", "grp")
    }

    /// The fingerprint of somebody's key.
    pub fn fingerprint_of(&self, user: &str) -> String {
        self.listed(user, "fpr").remove(0)
    }

    /// The keygrip of somebody's key.
    pub fn keygrip_of(&self, user: &str) -> String {
        self.listed(user, "grp").remove(0)
    }

    /// The keygrip of the subkey of somebody's key.
    pub fn decrypting_keygrip(&self, user: &str) -> String {
        self.listed(user, "grp").remove(1)
    }

    fn listed(&self, user: &str, record: &str) -> Vec<String> {
        let mut list = self.gpg(["--list-keys", "--with-keygrip", "--with-colons", "--"]);
        let listing = run(list.args(Some(user).filter(|user| !user.is_empty())));
        text(&listing)
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .filter(|fields| fields[0] == record)
            .map(|fields| fields[9].to_owned())
            .collect()
    }

    /// Starts the agent of this home.
    #[track_caller]
    pub fn launch_agent(&self) {
        run(self.command("gpgconf").args(["--launch", "gpg-agent"]));
    }

    /// The process of the agent of this home.
    #[track_caller]
    pub fn agent_pid(&self) -> u32 {
        let answer = self.connect_agent(&["GETINFO pid", "/bye"]);
        let pid = answer.lines().find_map(|line| line.strip_prefix("D ")?.trim().parse().ok());
        pid.unwrap_or_else(|| panic!("no agent says its pid: {answer}"))
    }

    /// Sends a signal to the agent of this home.
    #[track_caller]
    pub fn signal_agent(&self, pid: u32, with: Signal) {
        *self.stopped.lock().unwrap() = Some(pid).filter(|_| with == Signal::STOP);
        signal(pid, with);
    }

    /// Kills the agent, and waits until its socket has no listener.
    pub fn kill_agent(&self, pid: u32) {
        self.signal_agent(pid, Signal::KILL);
        let socket = self.socket();
        eventually("the agent has ended", || UnixStream::connect(&socket).is_err());
    }

    /// Ends every daemon of this home, and waits until the agent is gone.
    #[track_caller]
    pub fn end_agents(&self) {
        let socket = self.socket();
        // Again, in case that a busy machine didn't get that far in time.
        eventually("the agent has ended", || {
            self.kill_daemons();
            within(KILL_TIME, || UnixStream::connect(&socket).is_err())
        });
    }

    /// Tells every daemon of this home to end.
    fn kill_daemons(&self) {
        // What a test has put at the path may never answer.
        let mut kill = self.command("timeout");
        kill.arg(KILL_TIME.as_secs().to_string()).args(["gpgconf", "--kill", "all"]);
        let _ = kill.output();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(pid) = self.stopped.get_mut().ok().and_then(|pid| *pid) {
            signal(pid, Signal::CONT);
        }
        if self.path.is_dir() {
            self.kill_daemons();
        }
        let folder = self.sockets.get().and_then(|[socket, _]| socket.parent());
        let is_apart = |folder: &&Path| folder.starts_with("/run/user") && *folder != self.path;
        match folder.filter(is_apart) {
            // gpgconf would leave what a test has put there.
            Some(folder) => drop(std::fs::remove_dir_all(folder)),
            None => drop(self.command("gpgconf").arg("--remove-socketdir").output()),
        }
    }
}

/// The version of this machine's gpg-agent, which is that of its gpg: `2.2.40`.
pub fn gpg_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let said = text(&run(command("gpg-agent").arg("--version")));
        let first = said.lines().next().unwrap_or_default();
        let version = first.rsplit(' ').next().unwrap_or_default();
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert!(numbers >= (2, 2), "the tests need GnuPG 2.2 or later, and this is: {first}");
        version.to_owned()
    })
}

/// What this machine's gpg-agent answers to `GETINFO version`.
pub fn version_answer() -> String {
    format!("D {}\nOK\n", gpg_version())
}
