//! Targets: the places that a bridge leads to. Each can run a command with a stdio stream; the rest
//! is built on that.

mod address;
mod docker;
mod install;
mod local;
mod presence;
mod process;

use std::ffi::OsString;
use std::path::Path;

pub use address::TargetAddress;
pub use docker::{Engine, LabelNews};
pub use install::{Installed, install};
pub use presence::{Following, Presence};
pub use process::{Process, Remaining};

use crate::{Error, ErrorKind, Result};

/// A command for a target: no shell sees it unless it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// What is set in its environment beside what is there.
    pub env: Vec<(OsString, OsString)>,
    /// Whether it goes on when nobody holds its [`Process`] any more. In a container it always does.
    pub outlives_us: bool,
}

impl TargetCommand {
    /// A command of these words.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { words, env: Vec::new(), outlives_us: false }
    }

    /// Sets a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Lets it go on when nobody holds its [`Process`] any more.
    #[must_use]
    pub fn outliving(self) -> Self {
        Self { outlives_us: true, ..self }
    }
}

/// A place that a bridge can lead to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A second GnuPG home on this machine.
    Local(local::LocalTarget),
    /// A container.
    Docker(docker::DockerTarget),
}

impl Target {
    /// Finds the target that an address names, for a user there or its default one. It has to run.
    pub async fn find(address: &TargetAddress, user: Option<&str>) -> Result<Self> {
        match address {
            TargetAddress::Local(home) => local(home, user),
            TargetAddress::Docker(name) => Engine::connect().await?.find_running(name, user).await,
        }
    }

    /// Finds the target that an address names, also one that doesn't run, and sees where it stands.
    pub async fn find_any(address: &TargetAddress, user: Option<&str>) -> Result<(Self, Presence)> {
        match address {
            TargetAddress::Local(home) => Ok((local(home, user)?, Presence::Running)),
            TargetAddress::Docker(name) => Engine::connect().await?.find(name, user).await,
        }
    }

    /// Follows the target as it goes and comes back, from a task of this thread. The first look at
    /// it has been taken when this returns.
    pub async fn follow(&self) -> Following {
        match self {
            Self::Local(_) => Following::constant(Presence::Running),
            Self::Docker(target) => target.follow().await,
        }
    }

    /// What tells the target from every other, whatever name it is called by.
    pub fn key(&self) -> String {
        match self {
            Self::Local(target) => target.key(),
            Self::Docker(target) => target.id().to_owned(),
        }
    }

    /// The address that it goes by, whatever it was called: a container's name.
    pub fn address(&self) -> TargetAddress {
        match self {
            Self::Local(target) => target.address(),
            Self::Docker(target) => TargetAddress::Docker(target.name().to_owned()),
        }
    }

    /// What is worth telling about the target that was found.
    pub fn describe(&self) -> String {
        match self {
            Self::Local(_) => String::new(),
            Self::Docker(target) => target.describe(),
        }
    }

    /// Runs a command there, as the target's user.
    pub async fn run(&self, command: &TargetCommand) -> Result<Process> {
        match self {
            Self::Local(target) => target.run(command),
            Self::Docker(target) => target.run(command).await,
        }
    }

    /// A program of this machine that runs a command there with our own standard streams.
    pub fn in_the_foreground(
        &self,
        command: &TargetCommand,
        terminal: bool,
    ) -> Result<std::process::Command> {
        match self {
            Self::Local(target) => target.in_the_foreground(command),
            Self::Docker(target) => Ok(target.in_the_foreground(command, terminal)),
        }
    }

    /// Whether an error of a command says that the target has no shell.
    fn says_no_shell(&self, error: &Error) -> bool {
        match self {
            Self::Local(_) => false,
            Self::Docker(_) => docker::DockerTarget::says_no_shell(error),
        }
    }

    /// The processor of a target that can't be asked with a shell.
    async fn processor(&self) -> Result<String> {
        match self {
            Self::Local(_) => Ok(std::env::consts::ARCH.to_owned()),
            Self::Docker(target) => target.processor().await,
        }
    }

    /// Puts a program into a target without a shell.
    async fn put(&self, name: &str, program: &[u8]) -> Result<String> {
        match self {
            Self::Local(_) => Err(Error::failed("this machine has no shell")),
            Self::Docker(target) => target.put(name, program).await,
        }
    }

    /// Runs a command there to its end and gives back what it wrote, at most 64 KiB of it.
    pub async fn output(&self, command: &TargetCommand, input: &[u8]) -> Result<String> {
        let output = self.run(command).await?.output(input).await;
        output.map_err(|error| match self {
            Self::Local(_) => error,
            Self::Docker(target) => target.explain(error),
        })
    }
}

fn local(home: &Path, user: Option<&str>) -> Result<Target> {
    if user.is_some() {
        let message = "a local target has no other user than you";
        return Err(Error::new(ErrorKind::Usage, message).hint("leave --user out"));
    }
    Ok(Target::Local(local::LocalTarget::new(home)))
}
