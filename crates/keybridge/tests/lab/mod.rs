//! The lab of the whole-chain tests: real programs in folders of their own, and nothing left behind.
//!
//! A [`Lab`] has two GnuPG homes, the host's and the target's, and an environment that nothing of the
//! machine's user leaks into. A [`Bridge`] is the real program between the two. A [`Client`] speaks
//! Assuan by hand, and a [`StandIn`] takes the place of gpg-agent where a real one can't be made to do
//! what a test needs. A [`ContainerLab`] has a host and a container of a real engine, and an [`Engine`] is one
//! that a test can stop.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::must_use_candidate,
    reason = "each test file uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod bridge;
mod client;
mod direct_path;
mod docker;
mod engine;
mod engine_relay;
mod home;
mod memory;
mod podman;
mod program;
mod snapshot;
mod stand_in;

pub use bridge::{Bridge, Ended};
pub use client::Client;
pub use direct_path::cut_direct_path;
pub use docker::{Container, ContainerLab, Docker, Image, docker, static_helper};
pub use engine::Engine;
pub use engine_relay::EngineRelay;
pub use home::{Home, USER};
pub use memory::{allocated, allocated_by, descriptors, pss, pss_of_both};
pub use podman::PodmanSocket;
pub use program::Program;
pub use snapshot::snapshot;
pub use stand_in::{Peer, StandIn, native_socket_file};

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// The program of the host.
pub const KEYBRIDGE: &str = env!("CARGO_BIN_EXE_keybridge");

/// Folders, homes and environment of one test.
pub struct Lab {
    folder: TempDir,
    /// Where the keys are.
    pub host: Home,
    /// The second home, which starts empty.
    pub target: Home,
    cache: PathBuf,
    path: String,
}

impl Lab {
    /// Two empty homes.
    pub fn empty() -> Self {
        let helper = Path::new(KEYBRIDGE).with_file_name("keybridge-remote");
        assert!(
            helper.exists(),
            "{} is missing: run `cargo build --workspace` first",
            helper.display()
        );
        // Short: a socket's path may have 107 bytes.
        let folder = tempfile::Builder::new().prefix("kb").tempdir_in("/tmp").unwrap();
        for name in ["home", "tmp", "bin"] {
            make_private(&folder.path().join(name));
        }
        let environment = home::Environment::new(folder.path());
        let lab = Self {
            host: Home::new(folder.path().join("h"), environment.clone()),
            target: Home::new(folder.path().join("t"), environment),
            cache: shared_cache(&helper),
            path: std::env::var("PATH").unwrap(),
            folder,
        };
        make_private(lab.host.path());
        make_private(lab.target.path());
        lab
    }

    /// A host with a key that signs and decrypts, and an empty second home.
    pub fn with_key() -> Self {
        let lab = Self::empty();
        lab.host.make_key();
        lab
    }

    /// The folder that everything is in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where helpers are put, in the place of the folder that all labs share.
    pub fn set_cache(&mut self, cache: impl Into<PathBuf>) {
        self.cache = cache.into();
    }

    /// The folders in which programs are looked for.
    pub fn set_path(&mut self, path: impl Into<String>) {
        self.path = path.into();
    }

    /// Puts a script before the program of that name, for the bridge alone.
    pub fn put_before(&mut self, program: &str, script: &str) {
        let path = self.at("bin").join(program);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        set_mode(&path, 0o755);
        self.path = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").unwrap());
    }

    /// `keybridge` in the lab's environment.
    pub fn keybridge(&self) -> Command {
        self.keybridge_at(Path::new(KEYBRIDGE))
    }

    /// Another build of `keybridge` in the lab's environment.
    pub fn keybridge_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            .env("XDG_CACHE_HOME", &self.cache)
            .env("KEYBRIDGE_GNUPG_HOME", self.host.path())
            .stdin(Stdio::null());
        command
    }

    /// `keybridge up` for the second home.
    pub fn up_command(&self, arguments: &[&str]) -> Command {
        self.up_command_for(self.target.path(), arguments)
    }

    /// `keybridge up` for a home.
    pub fn up_command_for(&self, home: &Path, arguments: &[&str]) -> Command {
        let mut command = self.keybridge();
        command.arg("up").arg(local(home)).args(["--foreground", "--json"]).args(arguments);
        command
    }

    /// A bridge from the second home to the first one's agent, that works.
    pub fn up(&self) -> Bridge {
        self.up_with(&[])
    }

    /// A bridge with more arguments.
    pub fn up_with(&self, arguments: &[&str]) -> Bridge {
        Bridge::start(self.up_command(arguments))
    }

    /// Writes a file into the folder.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.host.end_agents();
        self.target.end_agents();
    }
}

/// The address of a home.
pub fn local(home: &Path) -> String {
    format!("local:{}", home.display())
}

/// The folder of the whole project.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Several tests act as other users.
pub fn need_root() {
    assert!(rustix::process::geteuid().is_root(), "this test has to be run as root");
}

/// Runs a script as another user, in whose name nothing of this machine is.
pub fn as_user(uid: u32, script: &str) -> Output {
    need_root();
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"])
        .args(["sh", "-c", script])
        .current_dir("/");
    output(&mut command)
}

/// Runs a command to its end, which has to come in time.
pub fn output(command: &mut Command) -> Output {
    feed(command, b"")
}

/// Runs a command with input to its end, which has to come in time.
pub fn feed(command: &mut Command, input: &[u8]) -> Output {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that doesn't read its input says itself what is wrong.
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let pid = child.id();
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        signal(pid, rustix::process::Signal::KILL);
        panic!("{shown} didn't end in time");
    };
    writer.join().unwrap();
    output.unwrap()
}

/// Runs a command that has to succeed, and gives back what it wrote.
pub fn run(command: &mut Command) -> Vec<u8> {
    run_with(command, b"")
}

/// Runs a command with input that has to succeed, and gives back what it wrote.
pub fn run_with(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let output = feed(command, input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output.stdout
}

/// Waits until something is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(POLL);
    }
}

/// Sends a signal to a process that the test has started.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // One that has ended already is as good.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Whether a process is there, and more than its status. Its threads can outlive the first of them,
/// and hold its sockets for as long.
pub fn is_alive(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        fs::read_to_string(thread.path().join("stat"))
            .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
    })
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn make_private(path: &Path) {
    DirBuilder::new().mode(0o700).create(path).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn set_owner(path: &Path, uid: u32) {
    need_root();
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

/// Bytes without a pattern that anything could compress or mistake, the same each time.
pub fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(size).collect()
}

/// One folder for the helper, in the folder that cargo gives to tests: a debug build of it is large.
fn shared_cache(helper: &Path) -> PathBuf {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    fs::create_dir_all(&cache).unwrap();
    let built = fs::metadata(helper).unwrap().modified().unwrap();
    // Those of earlier builds.
    for entry in fs::read_dir(cache.join("keybridge")).into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|put| put.modified().unwrap() < built) {
            let _ = fs::remove_file(entry.path());
        }
    }
    cache
}
