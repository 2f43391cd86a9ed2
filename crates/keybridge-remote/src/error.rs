//! What can go wrong before a bridge serves, and while it is undone.

use std::io;
use std::path::{Path, PathBuf};

use keybridge_proto::printable;
use keybridge_proto::report::{Failure, FailureKind};

use crate::EditError;
use crate::home::safe_path::euid;
use crate::shell_quote::quoted;

/// What is wrong and what a person can do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", printable(message))]
pub struct Problem {
    /// The facts, with the path.
    pub message: String,
    /// What can be done.
    pub hints: Vec<String>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hints: Vec::new() }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// Why a bridge can't be set up. Nothing is changed in the target then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A path that has to be there isn't.
    #[error(transparent)]
    NotFound(Problem),
    /// Somebody else has the socket.
    #[error(transparent)]
    InUse(Problem),
    /// A path belongs to somebody else, is of another kind, or can't be written.
    #[error(transparent)]
    NotPermitted(Problem),
    /// GnuPG is missing or too old.
    #[error(transparent)]
    NoGnupg(Problem),
    /// The target's GnuPG home is the host's own.
    #[error(transparent)]
    SameHome(Problem),
    /// Anything else.
    #[error(transparent)]
    Other(Problem),
}

impl StartError {
    /// The same kind of error about something else.
    pub(crate) fn about(&self, problem: Problem) -> Self {
        match self {
            Self::NotFound(_) => Self::NotFound(problem),
            Self::InUse(_) => Self::InUse(problem),
            Self::NotPermitted(_) => Self::NotPermitted(problem),
            Self::NoGnupg(_) => Self::NoGnupg(problem),
            Self::SameHome(_) => Self::SameHome(problem),
            Self::Other(_) => Self::Other(problem),
        }
    }

    /// The error in the form in which the host is told of it.
    pub fn failure(&self) -> Failure {
        let (kind, problem) = match self {
            Self::NotFound(problem) => (FailureKind::NotFound, problem),
            Self::InUse(problem) => (FailureKind::InUse, problem),
            Self::NotPermitted(problem) => (FailureKind::NotPermitted, problem),
            Self::NoGnupg(problem) => (FailureKind::NoGnupg, problem),
            Self::SameHome(problem) => (FailureKind::SameHome, problem),
            Self::Other(problem) => (FailureKind::Other, problem),
        };
        Failure { kind, message: problem.message.clone(), hints: problem.hints.clone() }
    }

    /// An error of the system about a path.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let problem = Problem::new(format!("{doing} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound(problem),
            io::ErrorKind::AddrInUse => Self::InUse(problem),
            io::ErrorKind::PermissionDenied => {
                let hint = format!("give uid {} the right to {}", euid(), quoted(path));
                Self::NotPermitted(problem.hint(hint))
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                let hint = format!("mount a folder that can be written at {}", quoted(path));
                Self::NotPermitted(problem.hint(hint))
            }
            _ => Self::Other(problem),
        }
    }
}

impl From<EditError> for StartError {
    fn from(error: EditError) -> Self {
        let hint = match &error {
            EditError::Unsafe { hint, .. } => hint.clone(),
            EditError::NotAFile { .. } | EditError::TooLong { .. } | EditError::Io { .. } => {
                let path = quoted(error.path());
                format!("make {path} a file that you can write to, or remove it")
            }
        };
        let problem = Problem::new(error.to_string()).hint(hint);
        match error {
            EditError::NotAFile { .. } | EditError::Unsafe { .. } => Self::NotPermitted(problem),
            EditError::TooLong { .. } => Self::Other(problem),
            EditError::Io { ref source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Self::NotPermitted(problem)
                }
                _ => Self::Other(problem),
            },
        }
    }
}

/// What could not be undone. The other steps were done all the same.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The socket stays where it is.
    #[error("removing {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the user's keeps our lines.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The GnuPG home is not the folder that was edited.
    #[error("{} is another folder than at the start: what was done could not be undone", path.display())]
    OtherHome {
        /// The home.
        path: PathBuf,
    },
    /// A file of ours for git stays.
    #[error("removing git's files: {0}")]
    Git(io::Error),
    /// The file of the lock stays.
    #[error("removing the lock's file: {0}")]
    Lock(io::Error),
    /// A task of the bridge broke.
    #[error("a part of the bridge broke: {0}")]
    Task(String),
}
