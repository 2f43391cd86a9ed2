//! The error of the host's program: a kind, what happened, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as data: `doctor` and `--json` print it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What failed and why, in one line.
    pub message: String,
    /// What a person can do about it, in order.
    pub hints: Vec<String>,
}

/// The kinds of failure, which decide about the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something failed.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The target is not there.
    NoTarget,
    /// An agent is not there.
    NoAgent,
}

/// How many choices an error lists.
const MOST_LISTED: usize = 20;

impl Error {
    /// An error without hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new() }
    }

    /// An error of no special kind.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Adds what a person can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds what could have been meant, as hints.
    #[must_use]
    pub(crate) fn listing(self, choices: Vec<String>, command: &str) -> Self {
        if choices.is_empty() {
            return self.hint(format!("`{command}` lists none at all"));
        }
        let more = choices.len().saturating_sub(MOST_LISTED);
        let listed = choices.into_iter().take(MOST_LISTED);
        let error = listed.fold(self.hint("these are available:"), Self::hint);
        match more {
            0 => error,
            more => error.hint(format!("and {more} more: `{command}` lists them")),
        }
    }

    /// Says before the message what was being done.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// The exit status of a program that ends with this error.
    pub const fn exit_status(&self) -> u8 {
        match self.kind {
            ErrorKind::Failed => 1,
            ErrorKind::Usage => 2,
            ErrorKind::NoTarget | ErrorKind::NoAgent => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
