//! Sessions: one client's conversation with an agent. [`RequestSession`] is the target's side of the
//! gpg lane, [`AgentSession`] the host's; [`RelaySession`](crate::ssh::RelaySession) and
//! [`SshSession`](crate::ssh::SshSession) are those of the ssh lane.
//!
//! The caller reports what happens (bytes, closed connections, time), and the session buffers what is to be
//! sent. The caller moves the bytes: it reads only while `takes_…_bytes` says so, writes what `to_…` holds, and
//! calls `…_took` with what was written. So memory is bounded by two lines and two small outboxes,
//! and bytes that come early wait in the sender's socket.
//!
//! When [`Session::cleanup`] returns a [`Cleanup`], the caller sends what `to_client` still holds,
//! closes both sides, and reports the result.

pub mod agent;
mod agent_keys;
mod agent_line;
mod agent_machine;
mod agent_operation;
pub(crate) mod core;
mod error;
mod keyinfo_fallback;
pub(crate) mod machine;
mod operations;
pub mod request;
mod request_machine;
mod turn;

use std::fmt::Display;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use agent::AgentSession;
pub use agent_operation::LeftOperation;
use core::{ErrorOf, HasCore, take_while};
pub use error::{FirstError, Peer, SessionError};
pub use machine::{InvalidTransition, Machine};
pub use operations::{Decisions, Entry, Operations, Outcome, Pending, Recorder};
pub use request::RequestSession;
pub use turn::Turn;

/// How long a session waits for things that don't need a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until the agent is reached.
    pub connect: Duration,
    /// From then until its greeting.
    pub greeting: Duration,
    /// Until a response is complete. No limit by default: a person may be at the pinentry.
    pub response: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), greeting: Duration::from_secs(5), response: None }
    }
}

/// The work of ending a session: send what is left for the client, close the agent's connection,
/// close the client's. Every step is done, even if another one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// Whether an error led here.
    pub had_error: bool,
}

/// One client's conversation with an agent, for the code that moves its bytes. Sessions differ in how
/// they connect; after that all are driven alike.
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

    /// The client hung up. The agent's connection is to be closed at once, so that a dialog is
    /// closed: gpg-agent does that from 2.4 on.
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

    /// Ready when an operation has its turn that has waited for others of its bridge: [`Self::timeout`] has to
    /// be called then.
    fn poll_turn(&self, _: &Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// When [`Self::timeout`] has to be called.
    fn deadline(&self) -> Option<Instant> {
        self.core().deadline()
    }

    /// Time has passed. To be called before bytes are moved.
    fn timeout(&mut self, now: Instant) {
        self.core_mut().timeout(now);
    }

    /// Whether nothing is left but to clean up.
    fn is_over(&self) -> bool {
        !self.state().is_live()
    }

    /// The operation that the agent may still work on when the session is over, if it is to keep its turn. To
    /// be called before [`Self::cleanup`].
    fn left_operation(&mut self) -> Option<LeftOperation> {
        None
    }

    /// The work of ending the session; returned once.
    fn cleanup(&mut self) -> Option<Cleanup> {
        self.core_mut().take_cleanup()
    }

    /// The result of that work.
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
