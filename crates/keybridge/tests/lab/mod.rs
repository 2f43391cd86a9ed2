//! The lab of the whole-chain tests: real programs in folders of their own, and nothing left behind.
//!
//! A [`Lab`] has two GnuPG homes, the host's and the target's, and an environment that nothing of the
//! machine's user leaks into. A [`Bridge`] is the real program between the two. A [`Client`] speaks
//! Assuan by hand, and a [`StandIn`] takes the place of gpg-agent where a real one can't be made to do
//! what a test needs. A [`ContainerLab`] has a host and a container of a real engine, and an [`Engine`] is one
//! that a test can stop. A [`GitRound`] is what git has signed, in any kind of place.
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

mod at_terminal;
mod bridge;
mod container_lab;
mod fake_helper;
mod git_round;
pub mod systemd;

pub use at_terminal::AtTerminal;
pub use bridge::{Bridge, Ended};
pub use container_lab::{ContainerLab, Docker, static_helper};
pub use fake_helper::{CHATTY, HARMFUL, fake_helper};
pub use git_round::{GitRound, SigningKey};
pub use keybridge_lab::{
    Client, Container, Engine, FORBIDDEN, Home, Image, PATIENCE, Peer, PodmanSocket, Program,
    Recorder, Relay, STAND_IN_VERSION, SshHome, StandIn, USER, allocated_by, as_user, command,
    descriptors_of, docker, eventually, feed, gpg_version, is_alive, is_allowed, is_asleep,
    leave_dead_socket, lines, make_private, native_socket_file, need_root, noise, on_this_thread,
    output, program, run, run_with, send_all, set_mode, set_owner, short_folder, signal, snapshot,
    text, user_command, verbs, version_answer, write_program,
};

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The program of the host.
pub const KEYBRIDGE: &str = env!("CARGO_BIN_EXE_keybridge");

/// What `scripts/build` has built, if `scripts/test` names it: it is fast, and its helper is small and is
/// copied into hundreds of containers. Else the one that is built with the tests.
fn host_program() -> PathBuf {
    let dist = std::env::var_os("KEYBRIDGE_DIST");
    dist.map_or_else(|| KEYBRIDGE.into(), |dist| PathBuf::from(dist).join("keybridge"))
}

/// Folders, homes and environment of one test.
pub struct Lab {
    /// Where the keys are.
    pub host: Home,
    /// The second home, which starts empty.
    pub target: Home,
    program: PathBuf,
    cache: PathBuf,
    path: String,
    // After the homes, whose agents end before their folder goes.
    folder: TempDir,
}

impl Lab {
    /// Two empty homes.
    pub fn empty() -> Self {
        let program = host_program();
        let helper = program.with_file_name("keybridge-remote");
        assert!(
            helper.exists(),
            "{} is missing: run `cargo build --workspace` first",
            helper.display()
        );
        let folder = short_folder("kb");
        for name in ["home", "tmp", "bin"] {
            make_private(&folder.path().join(name));
        }
        let home = |name: &str| {
            let at = |name: &str| folder.path().join(name);
            make_private(&at(name));
            Home::at(at(name), at("home"), at("tmp"))
        };
        Self {
            host: home("h"),
            target: home("t"),
            program,
            cache: shared_cache(&helper),
            path: std::env::var("PATH").unwrap(),
            folder,
        }
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

    /// Another build of `keybridge` in the place of the tests' own.
    pub fn set_program(&mut self, program: impl Into<PathBuf>) {
        self.program = program.into();
    }

    /// The folders in which programs are looked for.
    pub fn set_path(&mut self, path: impl Into<String>) {
        self.path = path.into();
    }

    /// Puts a script before the program of that name, for the bridge alone.
    pub fn put_before(&mut self, program: &str, script: &str) {
        let path = self.at("bin").join(program);
        write_program(&path, format!("#!/bin/sh\n{script}"));
        self.path = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").unwrap());
    }

    /// `keybridge` in the lab's environment.
    pub fn keybridge(&self) -> Command {
        self.keybridge_at(&self.program)
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
            .env("XDG_STATE_HOME", self.at("var"))
            .env("KEYBRIDGE_GNUPG_HOME", self.host.path())
            // How a suite is run on another path.
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

/// A program that was built by `scripts/build`.
pub fn shipped(name: &str) -> PathBuf {
    let folder = std::env::var_os("KEYBRIDGE_DIST").unwrap_or_else(|| {
        panic!("KEYBRIDGE_DIST doesn't name the folder with the built programs: run scripts/test")
    });
    let path = PathBuf::from(folder).join(name);
    assert!(path.is_file(), "{} is missing: run scripts/build", path.display());
    path
}

/// Whether a 64-bit ELF file with the low byte first asks for a program interpreter.
pub fn has_interpreter(file: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "a 64-bit ELF file");
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let at = |place: usize, size: usize| usize::try_from(number(place, size)).unwrap();
    let (table, size, count) = (at(0x20, 8), at(0x36, 2), at(0x38, 2));
    assert!(count > 0, "there are program headers");
    (0..count).any(|index| number(table + index * size, 4) == PT_INTERP)
}

/// The beginning of a program for the processor of this number, as far as anybody reads it.
pub fn program_for(number: u16) -> Vec<u8> {
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(16, 0);
    program.extend(2_u16.to_le_bytes());
    program.extend(number.to_le_bytes());
    program.resize(4096, 0);
    program
}

/// The number of arm64.
pub const AARCH64: u16 = 183;

/// The number of a processor that doesn't exist.
pub const NO_PROCESSOR: u16 = 0xfeed;

/// The address of a home.
pub fn local(home: &Path) -> String {
    format!("local:{}", home.display())
}

/// The folder of the whole project.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One folder with the helper in it, in the folder that cargo gives to tests: a debug build of it is large.
/// It is put there before any bridge looks: one that puts it removes it again if it fails or only undoes
/// something, while others start it.
fn shared_cache(helper: &Path) -> PathBuf {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    let fill = || {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let folder = cache.join("keybridge");
        fs::create_dir_all(&folder).unwrap();
        set_mode(&folder, 0o700);
        let program = fs::read(helper).unwrap();
        let path =
            folder.join(format!("keybridge-remote-{:x}", HexDisplay(&Sha256::digest(&program))));
        if !path.exists() {
            // Other suites may do the same.
            let new = folder.join(format!(".new-{}", std::process::id()));
            write_program(&new, program);
            fs::rename(new, &path).unwrap();
        }
        // Those of earlier builds.
        let built = fs::metadata(helper).unwrap().modified().unwrap();
        for entry in fs::read_dir(&folder).unwrap().flatten().filter(|it| it.path() != path) {
            if entry.metadata().is_ok_and(|put| put.modified().unwrap() < built) {
                let _ = fs::remove_file(entry.path());
            }
        }
        cache
    };
    CACHE.get_or_init(fill).clone()
}
