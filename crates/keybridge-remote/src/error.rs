//! Errors of the helper: a kind, which is sent to the host; what failed and why; and hints for a person.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use keybridge_proto::printable;
use keybridge_proto::report::{Failure, FailureKind};
use tokio::task::JoinError;

use crate::EditError;
use crate::home::safe_path::{PathError, UnsafePath, euid};
use crate::shell_quote::quoted;

/// The error of everything that a bridge does in the target.
#[derive(Debug, Clone)]
pub struct Error {
    kind: FailureKind,
    message: String,
    hints: Vec<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// What failed, with its path. The source, if there is one, says why.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), source: None }
    }

    /// An error that no kind fits.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Other, message)
    }

    /// Adds a hint for a person.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds why it failed.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// An error of the system about a path: "can't create PATH: why".
    pub(crate) fn io(verb: &str, path: &Path, error: io::Error) -> Self {
        let word = quoted(path);
        let (kind, hint) = match error.kind() {
            io::ErrorKind::NotFound => (FailureKind::NotFound, None),
            io::ErrorKind::AddrInUse => (FailureKind::InUse, None),
            io::ErrorKind::PermissionDenied => {
                let hint = format!("give uid {} the right to {verb} {word}", euid());
                (FailureKind::NotPermitted, Some(hint))
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                (FailureKind::NotPermitted, Some(format!("mount a writable folder at {word}")))
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (FailureKind::Other, Some(format!("free some space on the disk of {word}")))
            }
            _ => (FailureKind::Other, None),
        };
        let message = format!("can't {verb} {}", path.display());
        Self { kind, message, hints: hint.into_iter().collect(), source: Some(Arc::new(error)) }
    }

    /// A task of the helper panicked or was cancelled.
    pub fn task(what: &str, error: JoinError) -> Self {
        Self::other(format!("{what} failed")).because(error)
    }

    /// What kind of thing is wrong.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The error in the form that is sent to the host.
    pub fn failure(&self) -> Failure {
        Failure { kind: self.kind, message: self.text(), hints: self.hints.clone() }
    }

    /// What failed, why, and what to do, on one line.
    pub fn one_line(&self) -> String {
        let parts: Vec<String> = [self.text()].into_iter().chain(self.hints.clone()).collect();
        parts.join("; ")
    }

    fn text(&self) -> String {
        match &self.source {
            Some(source) => format!("{}: {source}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Error {
    /// What failed and why, without the hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", printable(&self.text()))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<EditError> for Error {
    fn from(error: EditError) -> Self {
        let (kind, hint) = match &error {
            EditError::Unsafe { hint, .. } => (FailureKind::NotPermitted, hint.clone()),
            EditError::NotAFile { path } => {
                (FailureKind::NotPermitted, format!("move {} away", quoted(path)))
            }
            EditError::TooLong { path } => {
                (FailureKind::Other, format!("shorten {}", quoted(path)))
            }
            EditError::Io { path, source, .. } => {
                let hint = format!("make {} a file that you can write to", quoted(path));
                let kind = match source.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        FailureKind::NotPermitted
                    }
                    _ => FailureKind::Other,
                };
                (kind, hint)
            }
        };
        // An edit's error says all of it, so there is nothing to add as the source.
        Self::new(kind, error.to_string()).hint(hint)
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Io(path, error) => Self::io("look at", &path, error),
            PathError::Unsafe(UnsafePath { place, why, hint }) => {
                let message = format!("{} is not safe: it {why}", place.display());
                Self::new(FailureKind::NotPermitted, message).hint(hint)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_and_why_and_keeps_its_kind() {
        let error = Error::io(
            "create",
            Path::new("/a b"),
            io::Error::from(io::ErrorKind::PermissionDenied),
        );
        assert_eq!(error.kind(), FailureKind::NotPermitted);
        assert_eq!(error.to_string(), "can't create /a b: permission denied");
        let failure = error.failure();
        assert_eq!(failure.message, error.to_string());
        assert_eq!(failure.hints, [format!("give uid {} the right to create '/a b'", euid())]);
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
    }
}
