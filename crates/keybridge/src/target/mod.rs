//! Targets: the places that a bridge leads to. Each can run a command with a stdio stream; the rest
//! is built on that.

mod address;
mod install;
mod local;
mod process;

use std::ffi::OsString;

pub use address::TargetAddress;
pub use install::install;
pub use process::{Process, Remaining};

use crate::{Error, Result};

/// A command for a target: no shell sees it unless it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

impl TargetCommand {
    /// A command of these words.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect() }
    }
}

/// A place that a bridge can lead to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A second GnuPG home on this machine.
    Local(local::LocalTarget),
}

impl Target {
    /// The target that an address names.
    pub fn new(address: &TargetAddress) -> Self {
        match address {
            TargetAddress::Local(home) => Self::Local(local::LocalTarget::new(home)),
        }
    }

    /// Runs a command there, as the target's user.
    pub fn run(&self, command: &TargetCommand) -> Result<Process> {
        match self {
            Self::Local(target) => target.run(command),
        }
    }

    /// Runs a command there to its end and gives back what it wrote, at most 64 KiB of it.
    pub async fn output(&self, command: &TargetCommand, input: &[u8]) -> Result<String> {
        self.run(command)?.output(input).await.map_err(|error: Error| error.context("the target"))
    }
}
