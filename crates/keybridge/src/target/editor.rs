//! `vscode:AUTHORITY`: the remote of an editor's window, which only the editor can reach.
//!
//! It runs our helper there and carries its bytes; no other program can be run. So this target is there
//! only in a process that the editor has started.

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
    /// The editor, where this process was started by it.
    carrier: Option<Rc<dyn Carrier>>,
}

/// Runs the helper in the remote, and carries its bytes.
pub trait Carrier {
    /// Starts the helper with these arguments. One that is not to outlive us ends with its [`Exit`].
    fn start(&self, arguments: Vec<String>, outlives_us: bool) -> Result<Carried>;
}

/// A helper that runs, or is about to; one that can't be started has ended.
pub struct Carried {
    /// What it reads.
    pub stdin: WriteHalf<SimplexStream>,
    /// What it writes.
    pub stdout: ReadHalf<SimplexStream>,
    /// What it complains about.
    pub stderr: ReadHalf<SimplexStream>,
    /// Its end.
    pub exit: Exit,
}

/// The end of a helper, and what is to be done when nobody waits for it any more.
pub struct Exit {
    ended: watch::Receiver<Ended>,
    dropped: Option<Box<dyn FnOnce()>>,
}

/// Whether a helper has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It runs, or is about to.
    NotYet,
    /// It ended with this status; without one it was killed, or never started.
    With(Option<i32>),
}

impl EditorTarget {
    /// What stands for the path of the helper: the extension in the remote knows where it is.
    pub(super) const HELPER: &str = "keybridge-remote";

    /// The remote of the window for which the editor has started this process.
    pub fn new(authority: impl Into<String>, carrier: Rc<dyn Carrier>) -> Self {
        Self { authority: authority.into(), carrier: Some(carrier) }
    }

    /// A remote that can't be reached from this process.
    pub(super) fn away(authority: &str) -> Self {
        Self { authority: authority.to_owned(), carrier: None }
    }

    /// Why a remote can't be reached from a process that the editor hasn't started.
    pub(super) fn elsewhere(authority: &str) -> Error {
        let authority = printable(authority);
        let message = format!("vscode:{authority} is reached from a window of the editor alone");
        Error::new(ErrorKind::NoTarget, message)
            .hint("open a window on it, and run `keybridge: Start` there")
    }

    pub(super) fn address(&self) -> TargetAddress {
        TargetAddress::Editor(self.authority.clone())
    }

    pub(super) fn no_commands(&self) -> Error {
        Error::failed(format!("{} runs no commands of ours", self.address()))
            .hint("use a terminal of the editor")
    }

    pub(super) fn run(&self, command: &TargetCommand) -> Result<Process> {
        let Some(carrier) = &self.carrier else { return Err(Self::elsewhere(&self.authority)) };
        let mut words = command.words.iter();
        if words.next().is_none_or(|program| program != Self::HELPER) || !command.env.is_empty() {
            return Err(self.no_commands());
        }
        let text = |word: &OsString| word.clone().into_string().ok();
        let arguments: Option<Vec<String>> = words.map(text).collect();
        let arguments = arguments.ok_or_else(|| Error::failed("an argument is not UTF-8"))?;
        carrier.start(arguments, command.outlives_us).map(Process::of_carried)
    }
}

impl fmt::Debug for EditorTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditorTarget").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Exit {
    /// The end that is told by a sender; `dropped` is called if nobody waits for it any more.
    pub fn new(ended: watch::Receiver<Ended>, dropped: Option<Box<dyn FnOnce()>>) -> Self {
        Self { ended, dropped }
    }

    /// Waits for the end; gives back the exit code, if there is one.
    pub(super) async fn wait(&mut self) -> Result<Option<i32>> {
        match self.ended.wait_for(|ended| *ended != Ended::NotYet).await.as_deref() {
            Ok(Ended::With(code)) => Ok(*code),
            Ok(Ended::NotYet) | Err(_) => Err(Error::failed("the editor is gone")),
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
