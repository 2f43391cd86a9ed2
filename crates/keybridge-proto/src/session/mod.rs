//! The two session machines: one client's talk with gpg-agent, seen from each side of the link.
//!
//! A session is fed with what happens (bytes, closes, time) and holds what is to be sent. The caller
//! moves bytes: it reads only while `takes_…_bytes` says so, writes what `to_…` holds, and says with
//! `…_took` what was written. So memory is bounded by two lines and two small outboxes, and bytes
//! that come early wait in the socket of whoever sent them.
//!
//! When [`Session::cleanup`] gives a [`Cleanup`], the caller
//! sends what `to_client` still holds, closes both sides, and reports how that went.

pub mod agent;
pub(crate) mod core;
mod error;
pub(crate) mod machine;
pub(crate) mod outbox;
pub mod request;

use std::fmt::Display;
use std::time::{Duration, Instant};

pub use agent::AgentSession;
use core::{ErrorOf, HasCore, take_while};
pub use error::{FirstError, Peer, SessionError};
pub use machine::{InvalidTransition, Machine};
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

/// One client's talk with an agent, as whoever moves its bytes sees it. How the two connect differs from
/// session to session; from then on all are driven alike.
pub trait Session: HasCore + Sized {
    /// The agent can't be reached.
    fn agent_unreachable(&mut self, reason: impl Into<String>);

    /// Whether the client's bytes can be taken now. At other times they have to wait.
    fn takes_client_bytes(&self) -> bool;

    /// Takes bytes of the client, up to the end of a request at most. Returns how many.
    fn client_bytes(&mut self, input: &[u8]) -> usize {
        take_while(self, input, Self::takes_client_bytes, Self::take_from_client)
    }

    /// The client's input has ended; what it asked is still answered. To be called when all of its bytes
    /// have been taken.
    fn client_eof(&mut self);

    /// The client hung up. The agent's connection is to be closed at once, so that a dialog goes away:
    /// gpg-agent closes its pinentry from 2.4 on.
    fn client_closed(&mut self, had_error: bool) {
        self.core_mut().client_closed(had_error);
    }

    /// Whether the agent's bytes can be taken now.
    fn takes_agent_bytes(&self) -> bool;

    /// Takes bytes of the agent. Returns how many.
    fn agent_bytes(&mut self, input: &[u8]) -> usize {
        take_while(self, input, Self::takes_agent_bytes, Self::take_from_agent)
    }

    /// The agent's connection closed. To be called when all of its bytes have been taken.
    fn agent_closed(&mut self, had_error: bool);

    /// What is to be sent to the agent.
    fn to_agent(&self) -> &[u8] {
        self.core().to_agent.pending()
    }

    /// So many bytes were sent to the agent.
    fn agent_took(&mut self, count: usize, now: Instant);

    /// What is to be sent to the client.
    fn to_client(&self) -> &[u8] {
        self.core().to_client.pending()
    }

    /// So many bytes were sent to the client.
    fn client_took(&mut self, count: usize) {
        self.core_mut().to_client.took(count);
    }

    /// When [`Self::timeout`] has to be called.
    fn deadline(&self) -> Option<Instant> {
        self.core().deadline()
    }

    /// Time has passed.
    fn timeout(&mut self, now: Instant) {
        self.core_mut().timeout(now);
    }

    /// Whether nothing is left but to clean up.
    fn is_over(&self) -> bool {
        !self.state().is_live()
    }

    /// The work of ending the session; given out once.
    fn cleanup(&mut self) -> Option<Cleanup> {
        self.core_mut().take_cleanup()
    }

    /// How that work went.
    fn cleanup_done(&mut self, outcome: Result<(), impl Display>) {
        self.core_mut().cleanup_done(outcome);
    }

    /// The machine's state.
    fn state(&self) -> Self::State {
        self.core().state
    }

    /// The first error, if there was one.
    fn error(&self) -> Option<&ErrorOf<Self>> {
        self.core().error()
    }
}
