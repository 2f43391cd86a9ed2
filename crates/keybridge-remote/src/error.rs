//! Errors of the helper, in the form that is sent to the host.

use std::fmt;
use std::io;
use std::path::Path;

use keybridge_proto::report::{Failure, FailureKind};
use keybridge_proto::{posix_word, printable};
use tokio::task::JoinError;

use crate::EditError;
use crate::home::safe_path::{PathError, UnsafePath, euid};

/// The error of everything that a bridge does in the target.
#[derive(Debug, Clone)]
pub struct Error(Failure);

impl Error {
    /// What failed, with its path.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self(Failure { kind, message: message.into(), hints: Vec::new() })
    }

    /// An error that no kind fits.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Other, message)
    }

    /// Adds a hint for a person.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Adds why it failed.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.0.message = format!("{}: {why}", self.0.message);
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
        Self(Failure { kind, message, hints: hint.into_iter().collect() }).because(error)
    }

    /// A task of the helper panicked or was cancelled.
    pub fn task(what: &str, error: JoinError) -> Self {
        Self::other(format!("{what} failed")).because(error)
    }

    /// What kind of thing is wrong.
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// The error in the form that is sent to the host.
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    /// What failed, why, and what to do, on one line.
    pub fn one_line(&self) -> String {
        let Failure { message, hints, .. } = &self.0;
        std::iter::once(message).chain(hints).map(String::as_str).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Error {
    /// What failed and why, without the hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0.message).fmt(f)
    }
}

impl std::error::Error for Error {}

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

/// The path, quoted if it has to be.
pub(crate) fn quoted(path: &Path) -> String {
    posix_word(path.as_os_str().as_encoded_bytes())
}

/// The command that creates a folder for its owner alone, with those above it.
pub(crate) fn how_to_make(folder: &Path) -> String {
    format!("mkdir -p -m 700 {}", quoted(folder))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

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
    }

    #[test]
    fn a_plain_path_stays_as_it_is() {
        assert_eq!(quoted(Path::new("/home/a-b/.gnupg")), "/home/a-b/.gnupg");
        assert_eq!(quoted(Path::new("/home/my files")), "'/home/my files'");
    }

    #[test]
    fn a_shell_reads_the_path_again() {
        for bytes in [
            &b"/plain"[..],
            b"/with space",
            b"/it's; rm -rf $HOME `x` \"y\" \\ *?[a]",
            b"/new\nline\x1b[2Jab",
            b"/raw\xff\xfe'ab",
            "/größe ü".as_bytes(),
            b"/~tilde",
        ] {
            let word = quoted(Path::new(OsStr::from_bytes(bytes)));
            assert!(!word.chars().any(char::is_control), "{word}");
            let output =
                Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(output.stdout, bytes, "{word}");
        }
    }
}
