//! Why a call of the command interface is rejected.

use uuid::Uuid;

use super::MAX_RESPONSE;
use crate::Error;
use keybridge_proto::session::agent::State;

/// Why a call is rejected. The session it names goes on, unless this says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// What should be a session id is no UUID.
    #[error("malformed session id: expected a UUID, got {size} characters that are none")]
    MalformedId {
        /// How long it is.
        size: usize,
    },
    /// There is no session of this id, or no more.
    #[error("unknown session id {0}: no such session is connected")]
    UnknownId(Uuid),
    /// The id of a new session is that of another one.
    #[error("the session id {0} is in use")]
    IdInUse(Uuid),
    /// The session is busy.
    #[error("session {id} is not Ready: another call is under way (state {state:?})")]
    NotReady {
        /// The session.
        id: Uuid,
        /// Where it stands.
        state: State,
    },
    /// There are too many sessions.
    #[error("there are {limit} sessions already, which is the limit")]
    TooManySessions {
        /// How many there may be.
        limit: usize,
    },
    /// The agent could not be reached, or its session ended with the call. The session is gone.
    #[error("session {id} has ended: {reason}")]
    Ended {
        /// The session.
        id: Uuid,
        /// Why it ended.
        reason: String,
    },
    /// A response is larger than what is kept. It was dropped whole.
    #[error("the response is larger than {MAX_RESPONSE} bytes")]
    ResponseTooLarge,
    /// A character of a block is no byte.
    #[error("expected characters up to U+00FF, each of them a byte, got U+{code:04X}")]
    NotLatin1 {
        /// The character.
        code: u32,
    },
    /// A version is not in the form `1.2.3`.
    #[error("expected a version such as {}, got something else", env!("CARGO_PKG_VERSION"))]
    MalformedVersion,
    /// Exporting keys failed.
    #[error(transparent)]
    Keys(#[from] Error),
}

impl CallError {
    /// A word for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::MalformedId { .. } => "malformedId",
            Self::UnknownId(_) => "unknownId",
            Self::IdInUse(_) => "idInUse",
            Self::NotReady { .. } => "notReady",
            Self::TooManySessions { .. } => "tooManySessions",
            Self::Ended { .. } => "ended",
            Self::ResponseTooLarge => "responseTooLarge",
            Self::NotLatin1 { .. } => "notLatin1",
            Self::MalformedVersion => "malformedVersion",
            Self::Keys(_) => "keys",
        }
    }
}
