//! A client that was started somewhere, and is asked from here.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::Rc;

use super::{Container, Lab};
use crate::error::{Context, Error, Result};
use crate::question::{Answer, Question};

/// A client that several subjects are measured by.
pub(crate) type SharedClient = Rc<RefCell<ClientProcess>>;

/// A client on this machine or in a container. It ends with the end of its input.
pub(crate) struct ClientProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ClientProcess {
    /// A client on this machine.
    pub(crate) fn here(lab: &Lab) -> Result<SharedClient> {
        let mut command = lab.command(&lab.program);
        command.arg("client");
        Self::of(command)
    }

    /// A client in a container.
    pub(crate) fn inside(lab: &Lab, container: &Container) -> Result<SharedClient> {
        Self::of(container.command([lab.program.as_os_str(), "client".as_ref()]))
    }

    fn of(mut command: std::process::Command) -> Result<SharedClient> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .while_doing("starting a client")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new("a client without pipes"));
        };
        let stdout = BufReader::new(stdout);
        Ok(Rc::new(RefCell::new(Self { child, stdin: Some(stdin), stdout })))
    }

    /// Asks, and waits for the answer: how long each took, in nanoseconds.
    pub(crate) fn ask(&mut self, question: &Question) -> Result<Vec<u64>> {
        let stdin = self.stdin.as_mut().ok_or_else(|| Error::new("the client has ended"))?;
        let mut line = serde_json::to_string(question)?;
        line.push('\n');
        stdin.write_all(line.as_bytes()).while_doing("asking a client")?;
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).while_doing("a client's answer")?;
        if answer.is_empty() {
            return Err(Error::new("a client has ended without an answer"));
        }
        match serde_json::from_str(&answer)? {
            Answer::Took { nanos } => Ok(nanos),
            Answer::Failed { why } => Err(Error::new(format!("{question:?}: {why}"))),
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}
