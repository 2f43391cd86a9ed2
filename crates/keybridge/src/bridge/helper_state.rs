//! What the helper has reported so far. Its texts are untrusted: here they are printable, and its sentences
//! are marked as the target's.

use std::fmt;

use keybridge_link::LinkEnd;
use keybridge_proto::mux::Version;
use keybridge_proto::printable;
use keybridge_proto::report::{Failure, ProbeResult, Ready, Report};

use crate::Error;
use crate::target::{mark_if_words, says};

/// Why a bridge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BridgeEnd {
    /// We ended it.
    Stopped,
    /// The helper closed the link and gave no reason.
    Closed,
    /// The helper reported why it can't go on.
    Failed(Error),
    /// The link broke, or the helper broke the protocol.
    Broken(String),
}

impl fmt::Display for BridgeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the bridge was ended"),
            Self::Closed => f.write_str("the helper ended"),
            Self::Failed(error) => write!(f, "the helper failed: {error}"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl From<BridgeEnd> for Error {
    fn from(end: BridgeEnd) -> Self {
        match end {
            BridgeEnd::Failed(error) => error,
            BridgeEnd::Stopped | BridgeEnd::Closed | BridgeEnd::Broken(_) => {
                Self::failed(end.to_string())
            }
        }
    }
}

/// What the helper has reported so far. Its size is bounded, however much the helper sends.
#[derive(Debug, Clone, Default)]
pub(super) struct HelperState {
    /// The name of the target, whose words are marked by it.
    target: String,
    /// Whether its HELLO came.
    pub(super) greeted: bool,
    /// How many READY reports came, one for each series of keys.
    pub(super) reports: u64,
    /// The last of these reports.
    pub(super) ready: Ready,
    /// The agents' answers to the helper's questions.
    pub(super) answers: Option<Vec<ProbeResult>>,
    /// The first failure that it reported.
    pub(super) failure: Option<Error>,
    /// Why the link ended.
    pub(super) end: Option<BridgeEnd>,
}

impl HelperState {
    /// Nothing yet, of a target with this name.
    pub(super) fn of(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    /// Its HELLO came.
    pub(super) fn greet(&mut self, program: &str) {
        let mut program = program.to_owned();
        mark_if_words(&self.target, &mut program);
        tracing::info!(%program, "the helper's HELLO came");
        self.greeted = true;
    }

    pub(super) fn report(&mut self, version: Version, payload: &[u8]) {
        match (version, Report::decode(payload)) {
            // A version 1 server reports nothing but that it is ready.
            (Version::One, _) => self.reports += 1,
            (Version::Two, Ok(Report::Ready(mut ready))) => {
                self.reports += 1;
                self.mark(&mut ready.warnings);
                let user = ready.user.iter_mut().filter_map(|user| user.name.as_mut());
                for value in user.chain([&mut ready.gnupg]) {
                    mark_if_words(&self.target, value);
                }
                self.ready = ready;
            }
            (Version::Two, Ok(Report::Answers(mut answers))) => {
                for answer in &mut answers {
                    match &mut answer.outcome {
                        Ok(version) => mark_if_words(&self.target, version),
                        Err(why) => self.mark([why]),
                    }
                }
                self.answers = Some(answers);
            }
            (Version::Two, Err(error)) => {
                self.failed(Error::failed("can't read the helper's report").caused_by(error));
            }
        }
    }

    pub(super) fn fail(&mut self, payload: &[u8]) {
        self.failed(error_of(&Failure::decode(payload), &self.target));
    }

    fn mark<'a>(&self, words: impl IntoIterator<Item = &'a mut String>) {
        for words in words {
            *words = says(&self.target, words);
        }
    }

    fn failed(&mut self, error: Error) {
        // Logged once: a helper must not be able to fill the log.
        if self.failure.is_none() {
            tracing::info!(%error, "the helper failed");
            self.failure = Some(error);
        }
    }

    pub(super) fn ended(&mut self, end: &LinkEnd, was_asked: bool) {
        self.end = Some(match (end, self.failure.take()) {
            (_, Some(error)) => BridgeEnd::Failed(error),
            (LinkEnd::Eof, None) if was_asked => BridgeEnd::Stopped,
            (LinkEnd::Eof, None) => BridgeEnd::Closed,
            (LinkEnd::Io(_) | LinkEnd::Protocol(_) | LinkEnd::Silent, None) => {
                BridgeEnd::Broken(printable(&end.to_string()).to_string())
            }
        });
    }

    /// Why nothing more will come.
    pub(super) fn error(&self) -> Error {
        match (&self.failure, &self.end) {
            (Some(error), _) => error.clone(),
            (None, Some(end)) => end.clone().into(),
            (None, None) => Error::failed("the helper doesn't answer"),
        }
    }
}

fn error_of(failure: &Failure, target: &str) -> Error {
    let hints = failure.hints.iter().map(|hint| says(target, hint));
    Error::new(failure.kind.into(), says(target, &failure.message)).with_hints(hints)
}
