//! Programs that run beside the measuring.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};

/// Nothing here takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// A program that is ended when it is no longer needed.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().while_doing(command.get_program().display())?;
        Ok(Self(child))
    }

    /// Starts a program, and gives back the first line that it writes.
    pub(crate) fn start_and_hear(command: &mut Command) -> Result<(Self, String)> {
        let mut running = Self::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        if let Some(stdout) = running.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.is_empty() {
            return Err(Error::new(format!("{} said nothing", command.get_program().display())));
        }
        Ok((running, line))
    }

    /// Asks it to end, and waits until it has.
    fn end(&mut self) -> Result<()> {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // One that has ended already is as good.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let child = &mut self.0;
        wait_until("a program ends", || Ok(child.try_wait()?.is_some()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.end().is_err() {
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

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            return Err(Error::new(format!("waited in vain: {what}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
