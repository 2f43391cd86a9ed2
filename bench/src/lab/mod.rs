//! What a run measures with: a folder of its own, homes and keys, agents, containers, clients.

mod agents;
mod client_process;
mod container;
mod running;
mod ssh_host;
mod target;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use agents::Agents;
pub(crate) use client_process::{ClientProcess, SharedClient};
pub(crate) use container::Container;
pub(crate) use running::{Running, output};
pub(crate) use ssh_host::{HOST, SshHost};
pub(crate) use target::{At, Place, Target};

use crate::error::{Context, Result};

/// Where everything is, and with what it is made.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    /// Short: a socket's path may have 107 bytes. Containers see it under the same path.
    pub(crate) folder: PathBuf,
    /// The static programs.
    pub(crate) dist: PathBuf,
    /// An image with gpg, git and sshd.
    pub(crate) image: String,
    /// This program, in the folder.
    pub(crate) program: PathBuf,
}

impl Lab {
    pub(crate) fn new(folder: PathBuf, dist: PathBuf, image: String) -> Result<Self> {
        let program = folder.join("keybridge-bench");
        let own = std::env::current_exe()?;
        fs::copy(&own, &program).while_doing(own.display())?;
        let lab = Self { folder, dist, image, program };
        lab.make_folder("home")?;
        lab.make_folder("tmp")?;
        Ok(lab)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new folder for nobody else.
    pub(crate) fn make_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.at(name);
        DirBuilder::new().mode(0o700).create(&path).while_doing(path.display())?;
        Ok(path)
    }

    /// A program in an environment that nothing of the machine's user leaks into.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .envs(["PATH", "DOCKER_HOST"].into_iter().filter_map(|name| {
                let value = std::env::var_os(name)?;
                Some((name, value))
            }))
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// `keybridge` for the agents of one kind.
    pub(crate) fn keybridge(&self, agents: &Agents) -> Command {
        let mut command = self.command(self.dist.join("keybridge"));
        command
            .env("XDG_CACHE_HOME", self.at("cache"))
            .env("KEYBRIDGE_STATE", self.at("state"))
            .env("KEYBRIDGE_GNUPG_HOME", agents.home.path());
        command
    }
}
