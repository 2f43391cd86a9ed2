//! Programs that run beside the measuring.

use std::process::{Child, Command};

use keybridge_lab::{PATIENCE, signal, within};
use rustix::process::Signal;

use crate::error::{Context, Error, Result};

/// A program that is ended when it is no longer needed.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().while_doing(command.get_program().display())?;
        Ok(Self(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        if !within(PATIENCE, || self.0.try_wait().is_ok_and(|ended| ended.is_some())) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Runs a program to its end, which has to be a good one; gives back what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().while_doing(command.get_program().display())?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(Error::new(format!("{command:?}: {}\n{}{}", output.status, out, err)))
}
