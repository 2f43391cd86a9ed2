//! The error of the host's program: a kind, what failed and why, what caused it, and hints. Where an
//! engine or ssh gives only a text, one function for each makes a kind of it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use keybridge_proto::report::FailureKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Hint;
use crate::checks::Check;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as data: it crosses the control socket, and `--json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// What kind of failure it is. Programs decide by this alone.
    pub kind: ErrorKind,
    /// What failed, for which target and why, in one line.
    pub message: String,
    /// What a person can do about it, in order.
    pub hints: Vec<Hint>,
    /// The check of `doctor` that it belongs to, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something failed, and no other kind fits.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The target can't be found, or doesn't run.
    NoTarget,
    /// An agent of the host can't be reached.
    NoAgent,
    /// An agent of the host isn't running.
    AgentAbsent,
    /// A program of the host that is needed isn't installed.
    ProgramMissing,
    /// The target has no such user.
    NoUser,
    /// The target has no shell.
    NoShell,
    /// There is no helper for the target's processor, or programs for it can't be run there.
    WrongProcessor,
    /// A copy of the helper in the target is incomplete.
    IncompleteCopy,
    /// A path in the target that has to exist doesn't.
    NotFound,
    /// Another process has the socket in the target; `--replace` may take it over.
    InUse,
    /// A path in the target belongs to another user, or can't be written.
    NotPermitted,
    /// GnuPG is missing in the target, or too old.
    NoGnupg,
    /// The target's GnuPG home is the host's own.
    SameHome,
    /// The target refused a login: a person has to call `up`, and may be asked something.
    LoginRefused,
}

/// How many choices an error lists.
const MOST_LISTED: usize = 20;

impl Error {
    /// An error without a source and hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), check: None, source: None }
    }

    /// An error of no special kind.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// An error that says no more than its source.
    pub fn from_source(kind: ErrorKind, source: impl StdError + Send + Sync + 'static) -> Self {
        let message = source.to_string();
        Self { source: Some(Source(Arc::new(source))), ..Self::new(kind, message) }
    }

    /// Adds why it failed: the source is kept, and its text ends the message.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        let message = format!("{}: {source}", self.message);
        Self { message, source: Some(Source(Arc::new(source))), ..self }
    }

    /// Says before the message what was being done. The error as it was becomes the source.
    #[must_use]
    pub fn context(self, doing: impl fmt::Display) -> Self {
        let (kind, hints, check) = (self.kind, self.hints.clone(), self.check);
        Self { hints, check, ..Self::new(kind, doing.to_string()) }.caused_by(self)
    }

    /// Adds what a person can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds several hints.
    #[must_use]
    pub(crate) fn with_hints<H: Into<Hint>>(mut self, hints: impl IntoIterator<Item = H>) -> Self {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Names the check of `doctor` that it belongs to, unless it has one.
    #[must_use]
    pub(crate) fn at_check(self, check: Check) -> Self {
        Self { check: self.check.or(Some(check)), ..self }
    }

    /// Adds what could have been meant, as hints.
    #[must_use]
    pub(crate) fn listing(self, choices: Vec<String>, command: &str) -> Self {
        if choices.is_empty() {
            return self.hint(format!("`{command}` lists none at all"));
        }
        let more = choices.len().saturating_sub(MOST_LISTED);
        let listed = choices.into_iter().take(MOST_LISTED);
        let error = self.hint("these are available:").with_hints(listed);
        match more {
            0 => error,
            more => error.hint(format!("and {more} more: `{command}` lists them")),
        }
    }

    /// Whether the target can't be reached now, and may be later.
    pub(crate) const fn means_away(&self) -> bool {
        matches!(self.kind, ErrorKind::NoTarget | ErrorKind::LoginRefused)
    }

    /// The exit status of a program that ends with this error.
    pub const fn exit_status(&self) -> u8 {
        match self.kind {
            ErrorKind::Failed
            | ErrorKind::NoUser
            | ErrorKind::NoShell
            | ErrorKind::WrongProcessor
            | ErrorKind::IncompleteCopy
            | ErrorKind::InUse
            | ErrorKind::NotPermitted
            | ErrorKind::SameHome
            | ErrorKind::LoginRefused => 1,
            ErrorKind::Usage => 2,
            ErrorKind::NoTarget
            | ErrorKind::NoAgent
            | ErrorKind::AgentAbsent
            | ErrorKind::ProgramMissing
            | ErrorKind::NotFound
            | ErrorKind::NoGnupg => 3,
        }
    }
}

/// Its message ends with the text of its source, so one line says all.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|Source(source)| &**source as &(dyn StdError + 'static))
    }
}

impl From<FailureKind> for ErrorKind {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::NotFound => Self::NotFound,
            FailureKind::InUse => Self::InUse,
            FailureKind::NotPermitted => Self::NotPermitted,
            FailureKind::NoGnupg => Self::NoGnupg,
            FailureKind::SameHome => Self::SameHome,
            FailureKind::Other => Self::Failed,
        }
    }
}

/// The error behind another one. Only its text crosses to another process.
#[derive(Debug, Clone)]
struct Source(Arc<dyn StdError + Send + Sync>);

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for Source {}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Arc::from(Box::from(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[test]
    fn context_keeps_the_kind_the_hints_and_every_source() {
        let error = Error::new(ErrorKind::NoAgent, "connecting to /a")
            .caused_by(refused())
            .hint("start it")
            .context("docker://web");
        assert_eq!(error.to_string(), "docker://web: connecting to /a: connection refused");
        assert_eq!(
            (error.kind, error.hints.as_slice()),
            (ErrorKind::NoAgent, &["start it".into()][..])
        );
        let inner = error.source().and_then(|source| source.downcast_ref::<Error>()).unwrap();
        assert_eq!(inner.to_string(), "connecting to /a: connection refused");
        let root = inner.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(root.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_error_comes_back_from_another_process_with_the_text_of_its_source() {
        let error = Error::failed("reading").caused_by(refused()).hint("try again");
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"failed","message":"reading: connection refused","hints":["try again"],"source":"connection refused"}"#
        );
        let back: Error = serde_json::from_str(&text).unwrap();
        assert_eq!(back, error);
        assert_eq!(back.source().unwrap().to_string(), "connection refused");
        let plain = r#"{"kind":"in-use","message":"/s is in use","hints":[]}"#;
        let back: Error = serde_json::from_str(plain).unwrap();
        assert_eq!(back, Error::new(ErrorKind::InUse, "/s is in use"));
        assert_eq!(serde_json::to_string(&back).unwrap(), plain);
    }
}
