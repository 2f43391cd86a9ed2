//! Why a call of the command interface is rejected.

use uuid::Uuid;

use super::MAX_RESPONSE;
use crate::Error;
use keybridge_proto::session::agent::State;

/// Why a call is rejected. The session it names stays open, unless this says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A session id isn't a UUID.
    #[error("malformed session id: expected a UUID, got {size} other characters")]
    MalformedId {
        /// How long it is.
        size: usize,
    },
    /// No session has this id, or it has ended.
    #[error("unknown session id {0}: no such session is connected")]
    UnknownId(Uuid),
    /// The id for a new session belongs to another one.
    #[error("the session id {0} is in use")]
    IdInUse(Uuid),
    /// The session is busy.
    #[error("session {id} is not Ready: another call is under way (state {state:?})")]
    NotReady {
        /// The session.
        id: Uuid,
        /// Its state.
        state: State,
    },
    /// Too many sessions are open.
    #[error("{limit} sessions are open already, which is the limit")]
    TooManySessions {
        /// How many may be open.
        limit: usize,
    },
    /// The calls under way hold too many bytes.
    #[error("the calls under way hold more than {limit} bytes, which is the limit")]
    TooManyBytes {
        /// How many they may hold.
        limit: usize,
    },
    /// The agent could not be reached, or closed the connection during the call. The session is over.
    #[error("session {id} has ended: {reason}")]
    Ended {
        /// The session.
        id: Uuid,
        /// Why it ended.
        reason: String,
    },
    /// A response is too large. All of it was dropped.
    #[error("the response is larger than {MAX_RESPONSE} bytes")]
    ResponseTooLarge,
    /// A character of a block isn't a byte.
    #[error("expected characters up to U+00FF, each of them a byte, got U+{code:04X}")]
    NotLatin1 {
        /// The character.
        code: u32,
    },
    /// A version doesn't have the form `1.2.3`.
    #[error("expected a version such as {}, got something else", env!("CARGO_PKG_VERSION"))]
    MalformedVersion,
    /// Exporting keys failed.
    #[error(transparent)]
    Keys(#[from] Error),
}

impl CallError {
    /// The kind as a word, for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::MalformedId { .. } => "malformedId",
            Self::UnknownId(_) => "unknownId",
            Self::IdInUse(_) => "idInUse",
            Self::NotReady { .. } => "notReady",
            Self::TooManySessions { .. } => "tooManySessions",
            Self::TooManyBytes { .. } => "tooManyBytes",
            Self::Ended { .. } => "ended",
            Self::ResponseTooLarge => "responseTooLarge",
            Self::NotLatin1 { .. } => "notLatin1",
            Self::MalformedVersion => "malformedVersion",
            Self::Keys(_) => "keys",
        }
    }
}
