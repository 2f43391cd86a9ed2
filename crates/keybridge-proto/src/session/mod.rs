//! The two session machines: one client's talk with gpg-agent, seen from each side of the link.
//!
//! A session is fed with what happens (bytes, closes, time) and holds what is to be sent. The caller
//! moves bytes: it reads only while `takes_…_bytes` says so, writes what `to_…` holds, and says with
//! `…_took` what was written. So memory is bounded by two lines and two small outboxes, and bytes
//! that come early wait in the socket of whoever sent them.
//!
//! When [`RequestSession::cleanup`] or [`AgentSession::cleanup`] gives a [`Cleanup`], the caller
//! sends what `to_client` still holds, closes both sides, and reports how that went.

pub mod agent;
mod agent_side;
pub(crate) mod core;
mod error;
pub(crate) mod outbox;
pub mod request;

use std::time::Duration;

pub use agent::AgentSession;
pub use agent_side::AgentSide;
pub use error::{FirstError, Peer, SessionError};
pub use request::RequestSession;

/// How long a session waits for what needs no person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until the agent is reached.
    pub connect: Duration,
    /// From then until its greeting.
    pub greeting: Duration,
    /// Until a response is complete. None by default: a person may be at the pinentry.
    pub response: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), greeting: Duration::from_secs(5), response: None }
    }
}

/// The work of ending a session, given out once: send what is left for the client, close the
/// agent's connection, close the client's. Every step is done, whatever the others say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// Whether an error led here.
    pub had_error: bool,
}

/// An event that has no place in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} has no place in state {state}")]
pub struct InvalidTransition {
    /// The name of the state.
    pub state: &'static str,
    /// The name of the event.
    pub event: &'static str,
}
