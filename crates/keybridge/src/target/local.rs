//! `local:DIR`: a second GnuPG home on the host; and `here`, sandboxes on the host that have its own home.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Process, TargetAddress, TargetCommand};
use crate::platform::lead_group;
use crate::{Error, Result};

/// Runs commands on the host.
#[derive(Debug, Clone)]
pub struct LocalTarget {
    /// Another GnuPG home; none for sandboxes.
    home: Option<PathBuf>,
}

impl LocalTarget {
    pub(super) fn new(home: Option<&Path>) -> Self {
        Self { home: home.map(Path::to_owned) }
    }

    pub(super) fn address(&self) -> TargetAddress {
        match &self.home {
            Some(home) => TargetAddress::Local(home.clone()),
            None => TargetAddress::Here,
        }
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub(super) fn key(&self) -> String {
        match &self.home {
            Some(home) => format!("local:{}", home.display()),
            None => TargetAddress::HERE.to_owned(),
        }
    }

    pub(super) fn in_the_foreground(
        &self,
        command: &TargetCommand,
    ) -> Result<std::process::Command> {
        let Some((program, arguments)) = command.words.split_first() else {
            return Err(Error::failed("can't run an empty command"));
        };
        let mut child = std::process::Command::new(program);
        child.args(arguments).envs(self.home.iter().map(|home| ("GNUPGHOME", home)));
        child.envs(command.env.iter().map(|(name, value)| (name, value)));
        Ok(child)
    }

    pub(super) fn run(&self, command: &TargetCommand) -> Result<Process> {
        let mut child = tokio::process::Command::from(self.in_the_foreground(command)?);
        // Ctrl-C must not reach the helper: it is stopped over the link.
        lead_group(&mut child);
        let child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(!command.outlives_us)
            .spawn()
            .map_err(|error| {
                let program = command.words.first().map(|program| program.display());
                let program = program.map(|program| program.to_string()).unwrap_or_default();
                Error::failed(format!("can't start {program}")).caused_by(error)
            })?;
        Process::of_child(child, false)
    }
}
