//! What both sessions have in common: a machine, lines on their way in, bytes on their way out, and
//! how the talk ends.

use std::fmt;
use std::time::{Duration, Instant};

use super::outbox::Outbox;
use super::{Cleanup, InvalidTransition, Peer, SessionError};
use crate::assuan::{LineBuffer, Reply};

/// A session's machine, as far as both have it in common.
pub(super) trait Machine: Copy + PartialEq + fmt::Debug {
    type Event: Copy;

    const CLOSING: Self;
    const ERROR_OCCURRED: Self::Event;
    const CLEANUP_COMPLETE: Self::Event;
    const CLEANUP_ERROR: Self::Event;

    fn cleanup_requested(had_error: bool) -> Self::Event;
    fn next(self, event: Self::Event) -> Result<Self, InvalidTransition>;
    /// Whether there is a connection whose close matters.
    fn is_live(self) -> bool;
    fn name(self) -> &'static str;
    fn event_name(event: Self::Event) -> &'static str;
}

/// The talk of two sides, and the machine that it moves.
#[derive(Debug)]
pub(super) struct Exchange<M> {
    pub(super) state: M,
    pub(super) from_client: LineBuffer,
    pub(super) from_agent: LineBuffer,
    pub(super) to_client: Outbox,
    pub(super) to_agent: Outbox,
    deadline: Option<Deadline>,
    /// The command under way is BYE: the agent may close before or after its OK.
    pub(super) bye: bool,
    pub(super) client_eof: bool,
    /// The first error; later ones follow from it.
    error: Option<SessionError>,
    ending: Ending,
}

/// A moment by which something has to have happened, and the error if it hasn't.
#[derive(Debug)]
struct Deadline {
    at: Instant,
    error: SessionError,
}

/// How far the end of a session has come.
#[derive(Debug, Clone, Copy)]
enum Ending {
    NotYet,
    Due(Cleanup),
    Given,
}

impl<M: Machine> Exchange<M> {
    pub(super) fn new(state: M) -> Self {
        Self {
            state,
            from_client: LineBuffer::default(),
            from_agent: LineBuffer::default(),
            to_client: Outbox::default(),
            to_agent: Outbox::default(),
            deadline: None,
            bye: false,
            client_eof: false,
            error: None,
            ending: Ending::NotYet,
        }
    }

    pub(super) fn step(&mut self, event: M::Event) {
        match self.state.next(event) {
            Ok(next) => {
                let (from, event) = (self.state.name(), M::event_name(event));
                tracing::trace!(from, event, to = next.name());
                self.state = next;
            }
            Err(invalid) => {
                debug_assert!(false, "{invalid}");
                self.error.get_or_insert(invalid.into());
            }
        }
    }

    pub(super) fn has_room_for_client_bytes(&self) -> bool {
        !self.client_eof && self.to_agent.has_room() && self.to_client.has_room()
    }

    /// From now on something has to happen within a limit, if there is one.
    pub(super) fn expect_within(
        &mut self,
        now: Instant,
        limit: impl Into<Option<Duration>>,
        error: impl FnOnce(Duration) -> SessionError,
    ) {
        self.deadline = limit.into().map(|limit| Deadline { at: now + limit, error: error(limit) });
    }

    pub(super) fn expect_nothing(&mut self) {
        self.deadline = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.as_ref().map(|deadline| deadline.at)
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        if let Some(deadline) = self.deadline.take_if(|deadline| deadline.at <= now) {
            self.fail(deadline.error);
        }
    }

    pub(super) fn error(&self) -> Option<&SessionError> {
        self.error.as_ref()
    }

    /// Ends with an error that the client is told of.
    pub(super) fn fail(&mut self, error: SessionError) {
        if self.state.is_live() {
            self.to_client.push(error.farewell().line());
            self.fail_silently(error);
        }
    }

    pub(super) fn fail_silently(&mut self, error: SessionError) {
        if self.state.is_live() {
            self.error.get_or_insert(error);
            self.step(M::ERROR_OCCURRED);
            self.end(true);
        }
    }

    pub(super) fn close(&mut self) {
        if self.state.is_live() {
            self.end(false);
        }
    }

    pub(super) fn client_closed(&mut self, had_error: bool) {
        if !self.state.is_live() {
            return;
        }
        if had_error {
            self.fail_silently(SessionError::Broken(Peer::Client));
        } else {
            self.close();
        }
        // Nobody is there to read it.
        self.to_client.clear();
    }

    pub(super) fn agent_closed(&mut self, had_error: bool, client_waits: bool) {
        if !self.state.is_live() {
            return;
        }
        if client_waits && !self.bye {
            self.to_client.push(Reply::NoAgent.line());
        }
        if had_error && !self.bye {
            self.fail_silently(SessionError::Broken(Peer::Agent));
        } else {
            self.close();
        }
    }

    pub(super) fn take_cleanup(&mut self) -> Option<Cleanup> {
        match self.ending {
            Ending::Due(cleanup) => {
                self.ending = Ending::Given;
                Some(cleanup)
            }
            Ending::NotYet | Ending::Given => None,
        }
    }

    pub(super) fn cleanup_done(&mut self, outcome: Result<(), impl fmt::Display>) {
        if self.state != M::CLOSING {
            return;
        }
        match outcome {
            Ok(()) => self.step(M::CLEANUP_COMPLETE),
            Err(error) => {
                self.error.get_or_insert(SessionError::Cleanup(error.to_string()));
                self.step(M::CLEANUP_ERROR);
            }
        }
    }

    /// Nothing more goes to the agent, and the cleanup is due.
    fn end(&mut self, had_error: bool) {
        self.step(M::cleanup_requested(had_error));
        self.deadline = None;
        self.to_agent.clear();
        self.ending = Ending::Due(Cleanup { had_error });
    }
}
