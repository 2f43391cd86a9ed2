//! What the helper has reported so far. Its texts are untrusted, and printable here.

use std::fmt;

use keybridge_link::LinkEnd;
use keybridge_proto::direct::DirectOffer;
use keybridge_proto::printable;
use keybridge_proto::report::{Failure, ProbeResult, Ready};

use crate::Error;

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
    /// Whether its HELLO came.
    pub(super) greeted: bool,
    /// How many READY reports came, one for each series of keys.
    pub(super) reports: u64,
    /// The last of these reports.
    pub(super) ready: Ready,
    /// The agents' answers to the helper's questions.
    pub(super) answers: Option<Vec<ProbeResult>>,
    /// Its first offer of a direct path.
    pub(super) offer: Option<DirectOffer>,
    /// The first failure that it reported.
    pub(super) failure: Option<Error>,
    /// Why the link ended.
    pub(super) end: Option<BridgeEnd>,
}

impl HelperState {
    pub(super) fn report(&mut self, payload: &[u8]) {
        let ready = Ready::decode(payload);
        if ready.answers.is_empty() {
            self.reports += 1;
            self.ready = ready;
        } else {
            self.answers = Some(ready.answers);
        }
    }

    pub(super) fn offer(&mut self, payload: &[u8]) {
        if self.offer.is_none() {
            self.offer = DirectOffer::decode(payload);
        }
    }

    pub(super) fn fail(&mut self, payload: &[u8]) {
        // Logged once: a helper must not be able to fill the log.
        if self.failure.is_none() {
            let error = error_of(&Failure::decode(payload));
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

fn error_of(failure: &Failure) -> Error {
    // Marked as the target's: a malicious one can write anything here.
    let hints = failure.hints.iter().map(|hint| format!("the target says: {}", show(hint)));
    Error::new(failure.kind.into(), show(&failure.message)).with_hints(hints)
}

fn show(text: &str) -> String {
    printable(text).to_string()
}
