//! What can end a session of the ssh lane.

use std::time::Duration;

use super::frame::FAILURE;
use super::{BindError, FrameError, Malformed, MessageType};
use crate::session::core::Fault;
use crate::session::{InvalidTransition, Peer};

/// Why a session ended early, or why it refuses everything. Never shows what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Invalid frames.
    #[error("{from}: {error}")]
    Frame {
        /// Who sent them.
        from: Peer,
        /// What is wrong with them.
        error: FrameError,
    },
    /// The client answers, as an agent does. Two clients whose connections are joined would keep each
    /// other's sessions busy for ever.
    #[error("client: expected a request, got {0}")]
    AnswerOfClient(MessageType),
    /// The end of a connection inside a frame.
    #[error("{0}: expected the rest of a frame, got the end of the connection")]
    CutShort(Peer),
    /// The agent sent something without a request.
    #[error("expected silence until the next request, got {size} bytes from the agent")]
    Unasked {
        /// How many bytes came at once.
        size: usize,
    },
    /// The agent's list of keys can't be parsed, so it can't be reduced to those that are lent.
    #[error("invalid list of keys from the agent: {0}")]
    List(#[from] Malformed),
    /// The connection couldn't be bound to an SSH session, so nothing is signed on it.
    #[error("the connection can't be bound to its SSH session: {0}")]
    Bind(#[from] BindError),
    /// The agent could not be reached in time.
    #[error("expected a connection to the agent within {0:?}, got none")]
    ConnectTimeout(Duration),
    /// The client did not send its request in time.
    #[error("expected the rest of a request within {0:?}, got a part of it")]
    RequestTimeout(Duration),
    /// The agent did not answer in time; only with a limit that the user set.
    #[error("expected the agent's answer within {0:?}, got none")]
    ResponseTimeout(Duration),
    /// The agent could not be reached.
    #[error("the agent can't be reached: {0}")]
    Unreachable(String),
    /// A connection failed.
    #[error("the {0}'s connection broke")]
    Broken(Peer),
    /// Ending the session failed.
    #[error("closing the session: {0}")]
    Cleanup(String),
    /// The session was driven in an invalid way.
    #[error(transparent)]
    Invalid(#[from] InvalidTransition),
}

impl Fault for SessionError {
    fn broken(peer: Peer) -> Self {
        Self::Broken(peer)
    }

    fn cleanup(reason: String) -> Self {
        Self::Cleanup(reason)
    }

    fn farewell(&self) -> &'static [u8] {
        // The protocol can't say why.
        &FAILURE
    }
}
