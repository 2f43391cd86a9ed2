//! `vscode:AUTHORITY`: the remote of an editor's window, which only the editor can reach.
//!
//! The editor runs our helper there and carries its bytes; it runs no other program. So this target can be
//! used only in a process that the editor has started.

use std::ffi::OsString;
use std::fmt;
use std::rc::Rc;

use keybridge_proto::printable;
use tokio::io::{ReadHalf, SimplexStream, WriteHalf};
use tokio::sync::watch;

use super::{Process, TargetAddress, TargetCommand};
use crate::{Error, ErrorKind, Result};

/// The remote of an editor's window.
#[derive(Clone)]
pub struct EditorTarget {
    authority: String,
    /// The editor, if it has started this process.
    runner: Option<Rc<dyn HelperRunner>>,
}

/// Runs the helper in the remote, and carries its bytes.
pub(crate) trait HelperRunner {
    /// Starts the helper with these arguments. Dropping the [`Exit`] ends a helper that doesn't outlive us.
    fn start(&self, arguments: Vec<String>, outlives_us: bool) -> Result<RunningHelper>;
}

/// A helper that runs or is being started. One that can't be started counts as ended.
pub(crate) struct RunningHelper {
    /// Its standard input.
    pub(crate) stdin: WriteHalf<SimplexStream>,
    /// Its standard output.
    pub(crate) stdout: ReadHalf<SimplexStream>,
    /// Its standard error.
    pub(crate) stderr: ReadHalf<SimplexStream>,
    /// Its end.
    pub(crate) exit: Exit,
}

/// The end of a helper, and what to do if this is dropped before.
pub(crate) struct Exit {
    ended: watch::Receiver<Ended>,
    dropped: Option<Box<dyn FnOnce()>>,
}

/// Whether a helper has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It runs or is being started.
    NotYet,
    /// It ended with this status; without one it was killed, or never started.
    With(Option<i32>),
}

impl EditorTarget {
    /// Used as the path of the helper: the extension in the remote knows the real one.
    pub(super) const HELPER: &str = "keybridge-remote";

    /// The remote of the window for which the editor has started this process.
    pub(crate) fn new(authority: impl Into<String>, runner: Rc<dyn HelperRunner>) -> Self {
        Self { authority: authority.into(), runner: Some(runner) }
    }

    /// A remote that can't be reached from this process.
    pub(super) fn unreachable(authority: &str) -> Self {
        Self { authority: authority.to_owned(), runner: None }
    }

    /// The error for a process that the editor hasn't started.
    pub(super) fn only_in_editor(authority: &str) -> Error {
        let authority = printable(authority);
        let message = format!("vscode:{authority} can be reached only from a window of the editor");
        Error::new(ErrorKind::NoTarget, message)
            .hint("open a window on it, and run `keybridge: Start` there")
    }

    pub(super) fn address(&self) -> TargetAddress {
        TargetAddress::Editor(self.authority.clone())
    }

    pub(super) fn no_commands(&self) -> Error {
        Error::failed(format!("keybridge can't run commands in {}", self.address()))
            .hint("use a terminal in the editor")
    }

    pub(super) fn run(&self, command: &TargetCommand) -> Result<Process> {
        let Some(runner) = &self.runner else { return Err(Self::only_in_editor(&self.authority)) };
        let mut words = command.words.iter();
        if words.next().is_none_or(|program| program != Self::HELPER) || !command.env.is_empty() {
            return Err(self.no_commands());
        }
        let text = |word: &OsString| word.clone().into_string().ok();
        let arguments: Option<Vec<String>> = words.map(text).collect();
        let arguments =
            arguments.ok_or_else(|| Error::failed("an argument for the helper isn't UTF-8"))?;
        runner.start(arguments, command.outlives_us).map(Process::of_helper)
    }
}

impl fmt::Debug for EditorTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditorTarget").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Exit {
    /// The end that a sender reports; `dropped` is called if this is dropped before.
    pub(crate) fn new(ended: watch::Receiver<Ended>, dropped: Option<Box<dyn FnOnce()>>) -> Self {
        Self { ended, dropped }
    }

    /// Waits for the end; returns the exit code, if there is one.
    pub(super) async fn wait(&mut self) -> Result<Option<i32>> {
        match self.ended.wait_for(|ended| *ended != Ended::NotYet).await.as_deref() {
            Ok(Ended::With(code)) => Ok(*code),
            Ok(Ended::NotYet) | Err(_) => Err(Error::failed("the editor has ended")),
        }
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        let runs = *self.ended.borrow() == Ended::NotYet;
        if let Some(dropped) = self.dropped.take().filter(|_| runs) {
            dropped();
        }
    }
}
