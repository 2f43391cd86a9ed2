//! A user's home with the entries of the git lane, and what an entry finds there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use keybridge_lab::{output_beside, set_mode, short_folder, write_program};
use rustix::process::geteuid;
use tempfile::TempDir;

use super::Setup;

/// What the entry for gpg is given to sign.
pub const OBJECT: &[u8] = b"an object\xff\0";

/// The home, and beside it a folder that is all of an entry's `PATH`.
pub struct GitHome(TempDir);

impl GitHome {
    pub fn new() -> Self {
        let home = Self(short_folder("kbg"));
        for name in ["home", "bin"] {
            keybridge_lab::make_private(&home.at(name));
        }
        home
    }

    /// A place beside the home.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.at("home")
    }

    /// A file in the folder of the lane.
    pub fn file(&self, name: &str) -> PathBuf {
        self.home().join(".keybridge").join(name)
    }

    /// A helper for this home alone. Without an answer its host gives none.
    pub fn helper(&self) -> Setup {
        self.helper_of(super::program(), "gpg=0123456789ABCDEF0123456789ABCDEF01234567")
    }

    /// The same with another program that is a helper, and with another key.
    pub fn helper_of(&self, program: impl AsRef<OsStr>, key: &str) -> Setup {
        let nowhere = Path::new("/nonexistent");
        let mut command = tokio::process::Command::new(program);
        command.env("HOME", self.home()).env("GIT_CONFIG_SYSTEM", self.at("system"));
        for name in ["XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"] {
            command.env_remove(name);
        }
        Setup::with_lanes(command, "git", nowhere, nowhere).arg(format!("--git={key}"))
    }

    /// A program on the `PATH` of the entries: a script.
    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.at("bin").join(name);
        write_program(&path, format!("#!/bin/sh\n{script}\n"));
        path
    }

    /// Has the entries find git.
    pub fn with_git(&self) {
        let git = keybridge_lab::program("git");
        self.program("git", &format!("exec {} \"$@\"", git.display()));
    }

    /// An entry, as git calls it.
    pub fn entry(&self, name: &str, arguments: &[&str]) -> Command {
        let mut entry = Command::new(self.file(name));
        self.prepare(&mut entry);
        entry.args(arguments);
        entry
    }

    /// An entry that may not connect to the socket, also where the tests are root's.
    pub fn entry_in_sandbox(&self, name: &str, arguments: &[&str]) -> Command {
        set_mode(&self.file("git.sock"), 0);
        if !geteuid().is_root() {
            return self.entry(name, arguments);
        }
        let mut entry = Command::new(keybridge_lab::program("setpriv"));
        self.prepare(&mut entry);
        entry.args(["--bounding-set", "-all"]).arg(self.file(name)).args(arguments);
        entry
    }

    fn prepare(&self, entry: &mut Command) {
        entry.env_clear().env("HOME", self.home()).env("PATH", self.at("bin"));
        entry.env("GIT_CONFIG_NOSYSTEM", "1");
    }

    /// What gpg's entry does with a request to sign.
    pub async fn sign(&self) -> Output {
        self.sign_with(&[]).await
    }

    /// The same with some of its environment set.
    pub async fn sign_with(&self, environment: &[(&str, &str)]) -> Output {
        let mut entry = self.entry(".keybridge-gpg", &["--status-fd=2", "-bsau", "KEY"]);
        entry.envs(environment.iter().copied());
        output_beside(entry, OBJECT).await
    }

    /// What it does in a sandbox.
    pub async fn sign_in_sandbox(&self) -> Output {
        let words = ["--status-fd=2", "-bsau", "KEY"];
        output_beside(self.entry_in_sandbox(".keybridge-gpg", &words), OBJECT).await
    }
}
