//! `local:DIR`: a second GnuPG home on this machine.

use std::path::PathBuf;
use std::process::Stdio;

use super::{Process, TargetAddress, TargetCommand};
use crate::platform::lead_group;
use crate::{Error, Result};

/// Runs commands on this machine, with another GnuPG home.
#[derive(Debug, Clone)]
pub struct LocalTarget {
    home: PathBuf,
}

impl LocalTarget {
    pub(super) fn new(home: &std::path::Path) -> Self {
        Self { home: home.to_owned() }
    }

    pub(super) fn address(&self) -> TargetAddress {
        TargetAddress::Local(self.home.clone())
    }

    pub(super) fn home(&self) -> &std::path::Path {
        &self.home
    }

    pub(super) fn key(&self) -> String {
        format!("local:{}", self.home.display())
    }

    pub(super) fn in_the_foreground(
        &self,
        command: &TargetCommand,
    ) -> Result<std::process::Command> {
        let Some((program, arguments)) = command.words.split_first() else {
            return Err(Error::failed("can't run an empty command"));
        };
        let mut child = std::process::Command::new(program);
        child.args(arguments).env("GNUPGHOME", &self.home);
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
        Process::of_child(child)
    }
}
