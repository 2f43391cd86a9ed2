//! What can end a session.

use std::time::Duration;

use super::InvalidTransition;
use super::core::Fault;
use crate::assuan::{ErrorCode, LineTooLong, NotAResponse, NulByte, Reply};

/// One side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The program in the target.
    Client,
    /// The agent, or the link to it.
    Agent,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Agent => "agent",
        })
    }
}

/// Why a session ended early. Never shows what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A line over the limit.
    #[error("{from}: {error}")]
    LineTooLong {
        /// Who sent it.
        from: Peer,
        /// The limit.
        error: LineTooLong,
    },
    /// A NUL byte where the agent would stop reading.
    #[error("client: {0}")]
    NulByte(#[from] NulByte),
    /// The client answers, as an agent does. Two clients whose connections are joined would keep each
    /// other's sessions busy for ever.
    #[error("client: expected a command, got an answer")]
    AnswerOfClient,
    /// A line of the agent that isn't Assuan.
    #[error("agent: {0}")]
    NotAResponse(#[from] NotAResponse),
    /// The agent greeted with an error.
    #[error("expected the greeting OK, got ERR {}", code_or_none(*.0))]
    GreetingErr(Option<ErrorCode>),
    /// The agent's first line was something else.
    #[error("expected the greeting OK, got another line of {size} bytes")]
    NotAGreeting {
        /// How long the line is.
        size: usize,
    },
    /// The agent sent something without a command.
    #[error("expected silence until the next command, got a line of {size} bytes from the agent")]
    Unasked {
        /// How long the line is.
        size: usize,
    },
    /// The agent began an inquiry inside another one.
    #[error("expected the end of the inquiry, got another INQUIRE")]
    NestedInquiry,
    /// The agent answered before it had read the end of an inquiry's data: what comes after the data,
    /// it reads as commands, and nobody knows which answer belongs to which.
    #[error("expected the agent to read an inquiry's data to its end, got an answer before")]
    InquiryEndedEarly,
    /// The opening exchange of a TCP socket failed.
    #[error("opening the agent's socket: {0}")]
    Opening(String),
    /// The socket allows commands that a forwarded one must not.
    #[error("expected a restricted socket, got an unrestricted one")]
    NotRestricted,
    /// Too many clients are connected.
    #[error("too many clients are connected")]
    TooManyClients,
    /// The agent could not be reached in time.
    #[error("expected a connection to the agent within {0:?}, got none")]
    ConnectTimeout(Duration),
    /// The agent did not greet in time.
    #[error("expected the agent's greeting within {0:?}, got none")]
    GreetingTimeout(Duration),
    /// The agent did not answer in time; only with a limit that the user set.
    #[error("expected the agent's response within {0:?}, got none")]
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

fn code_or_none(code: Option<ErrorCode>) -> String {
    code.map_or_else(|| "without a code".to_owned(), |code| code.to_string())
}

impl Fault for SessionError {
    fn broken(peer: Peer) -> Self {
        Self::Broken(peer)
    }

    fn cleanup(reason: String) -> Self {
        Self::Cleanup(reason)
    }

    fn farewell(&self) -> &'static [u8] {
        let reply = match self {
            Self::LineTooLong { from: Peer::Client, .. } => Reply::LineTooLong,
            Self::NulByte(_) | Self::AnswerOfClient => Reply::Syntax,
            Self::NotRestricted => Reply::Forbidden,
            Self::TooManyClients => Reply::LimitReached,
            Self::LineTooLong { from: Peer::Agent, .. }
            | Self::NotAResponse(_)
            | Self::NotAGreeting { .. }
            | Self::Unasked { .. }
            | Self::NestedInquiry
            | Self::InquiryEndedEarly => Reply::InvalidResponse,
            Self::GreetingErr(_)
            | Self::Opening(_)
            | Self::ConnectTimeout(_)
            | Self::GreetingTimeout(_)
            | Self::ResponseTimeout(_)
            | Self::Unreachable(_)
            | Self::Broken(_)
            | Self::Cleanup(_)
            | Self::Invalid(_) => Reply::NoAgent,
        };
        reply.line()
    }
}

/// Keeps the first error of a cleanup's steps, all of which are run.
#[derive(Debug)]
pub struct FirstError<E>(Result<(), E>);

impl<E> Default for FirstError<E> {
    fn default() -> Self {
        Self(Ok(()))
    }
}

impl<E> FirstError<E> {
    /// Records the result of a step.
    pub fn note(&mut self, step: Result<(), E>) {
        if self.0.is_ok() {
            self.0 = step;
        }
    }

    /// The result of the cleanup.
    pub fn into_result(self) -> Result<(), E> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_cleanup_is_kept() {
        let mut cleanup = FirstError::default();
        cleanup.note(Ok(()));
        cleanup.note(Err("first"));
        cleanup.note(Ok(()));
        cleanup.note(Err("second"));
        assert_eq!(cleanup.into_result(), Err("first"));
        assert_eq!(FirstError::<()>::default().into_result(), Ok(()));
    }

    #[test]
    fn errors_say_what_was_expected_and_what_came() {
        for (error, text) in [
            (
                SessionError::GreetingErr(Some(ErrorCode::from_value(67_108_941))),
                "expected the greeting OK, got ERR 67108941 (source 4, code 77)",
            ),
            (SessionError::GreetingErr(None), "expected the greeting OK, got ERR without a code"),
            (
                SessionError::LineTooLong { from: Peer::Client, error: LineTooLong },
                "client: expected a line of at most 1002 bytes, got a longer one",
            ),
            (SessionError::Broken(Peer::Agent), "the agent's connection broke"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
