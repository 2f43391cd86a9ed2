//! A GnuPG home of a test's own, with its real gpg-agent.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that lacks a part fails")]

use std::cell::Cell;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::gnupg::Gnupg;
use keybridge::keyring::{Keyring, Lending};
use keybridge_proto::gate::{AgentSocket, LentKeys};
use tempfile::TempDir;

/// Longer than anything takes, so that a test that hangs fails.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A home, removed at its end together with its agent.
pub struct Home {
    dir: TempDir,
    /// An agent that was stopped and would not hear of its end.
    stopped: Cell<Option<u32>>,
}

impl Home {
    /// An empty home, under a path that is short enough for sockets.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("kbh").tempdir_in("/tmp").unwrap();
        Self { dir, stopped: Cell::new(None) }
    }

    /// A home with one key pair.
    pub fn with_key(user: &str) -> Self {
        let home = Self::new();
        home.add_key(user);
        home
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn gnupg(&self) -> Gnupg {
        Gnupg::new(Some(self.path().to_owned()))
    }

    pub fn add_key(&self, user: &str) {
        self.ok(
            "gpg",
            &["--batch", "--passphrase", "", "--quick-gen-key", user, "ed25519", "sign"],
        );
    }

    /// A home with a key that signs and a subkey that decrypts.
    pub fn with_decrypting_key(user: &str) -> Self {
        let home = Self::new();
        let words = ["--quick-gen-key", user, "future-default", "default"];
        home.ok("gpg", &[&["--batch", "--passphrase", ""][..], &words].concat());
        home
    }

    /// The primary fingerprint of a key.
    pub fn fingerprint(&self, user: &str) -> String {
        self.field(user, "fpr")
    }

    pub fn keygrip(&self, user: &str) -> String {
        self.field(user, "grp")
    }

    /// The keygrip of the subkey that decrypts.
    pub fn decrypting_keygrip(&self, user: &str) -> String {
        self.fields(user, "grp").remove(1)
    }

    fn field(&self, user: &str, record: &str) -> String {
        self.fields(user, record).remove(0)
    }

    fn fields(&self, user: &str, record: &str) -> Vec<String> {
        let output = self.ok("gpg", &["--with-colons", "--with-keygrip", "--list-keys", user]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter(|line| line.starts_with(record))
            .map(|line| line.split(':').nth(9).unwrap().to_owned())
            .collect()
    }

    pub fn dirs(&self, name: &str) -> PathBuf {
        let output = self.ok("gpgconf", &["--list-dirs", name]);
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        keybridge_lab::command(program)
            .args(arguments)
            .env("GNUPGHOME", self.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub fn ok(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.run(program, arguments);
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output
    }

    /// The agent of this home, with all of its keys to lend.
    pub async fn agent(&self) -> GpgAgent {
        let dialer = AgentDialer::find(self.gnupg(), AgentSocket::Extra).await.unwrap();
        self.lent_by(dialer).await
    }

    /// All keys of this home, lent by an agent that is dialled in some way of its own.
    pub async fn lent_by(&self, dialer: AgentDialer) -> GpgAgent {
        let (keyring, _) = Keyring::open(self.gnupg(), Lending::default()).await.unwrap();
        GpgAgent::new(dialer, keyring)
    }

    pub fn launch(&self) {
        self.ok("gpgconf", &["--launch", "gpg-agent"]);
    }

    /// The process of the running agent.
    pub fn agent_pid(&self) -> u32 {
        let output = self.ok("gpg-connect-agent", &["--no-autostart", "GETINFO pid", "/bye"]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("D ")).unwrap().parse().unwrap()
    }

    pub fn signal_agent(&self, pid: u32, signal: &str) {
        self.stopped.set(Some(pid).filter(|_| signal == "-STOP"));
        self.ok("kill", &[signal, &pid.to_string()]);
    }

    /// Kills the agent and waits until nobody listens any more.
    pub fn kill_agent(&self, pid: u32) {
        self.signal_agent(pid, "-KILL");
        self.wait_for_silence();
    }

    fn wait_for_silence(&self) {
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(self.file("S.gpg-agent")).is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    pub fn stop_agent(&self) {
        self.run("gpgconf", &["--kill", "gpg-agent"]);
        self.wait_for_silence();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(pid) = self.stopped.get() {
            self.run("kill", &["-CONT", &pid.to_string()]);
        }
        self.stop_agent();
    }
}

/// An agent that lends no key.
pub fn without_keys(dialer: AgentDialer) -> GpgAgent {
    GpgAgent::new(dialer, Keyring::fixed(LentKeys::default()))
}

/// Runs a test on one thread, as the program runs.
pub fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(PATIENCE, test).await.expect("a test that waits for something");
    });
}
