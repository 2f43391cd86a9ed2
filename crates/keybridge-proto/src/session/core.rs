//! What all sessions have in common: a machine, bytes on their way in and out, and how the talk ends.

use std::fmt;
use std::time::{Duration, Instant};

use super::outbox::Outbox;
use super::{Cleanup, InvalidTransition, Peer};

/// A session's machine, as far as all have it in common.
pub(crate) trait Machine: Copy + PartialEq + fmt::Debug {
    type Event: Copy;
    /// Cuts what comes into units of the protocol.
    type Input: Default + fmt::Debug;
    type Error: Fault;

    const CLOSING: Self;
    const ERROR_OCCURRED: Self::Event;
    const CLEANUP_COMPLETE: Self::Event;
    const CLEANUP_ERROR: Self::Event;

    fn cleanup_requested(had_error: bool) -> Self::Event;
    fn next(self, event: Self::Event) -> Result<Self, InvalidTransition>;
    /// Whether there is a connection whose close matters.
    fn is_live(self) -> bool;
    /// Whether the client can be told of an error.
    fn takes_farewell(self) -> bool;
    fn name(self) -> &'static str;
    fn event_name(event: Self::Event) -> &'static str;
}

/// An error of a session.
pub(crate) trait Fault: From<InvalidTransition> + fmt::Debug {
    fn broken(peer: Peer) -> Self;
    fn cleanup(reason: String) -> Self;
    /// What the client is told, in the agent's place.
    fn farewell(&self) -> &'static [u8];
}

/// The talk of two sides, and the machine that it moves.
#[derive(Debug)]
pub(crate) struct SessionCore<M: Machine> {
    pub(crate) state: M,
    pub(crate) from_client: M::Input,
    pub(crate) from_agent: M::Input,
    pub(crate) to_client: Outbox,
    pub(crate) to_agent: Outbox,
    deadline: Option<Deadline<M::Error>>,
    /// The command under way is BYE: the agent may close before or after its OK.
    pub(crate) bye: bool,
    pub(crate) client_eof: bool,
    /// The first error; later ones follow from it.
    error: Option<M::Error>,
    ending: Ending,
}

/// A moment by which something has to have happened, and the error if it hasn't.
#[derive(Debug)]
struct Deadline<E> {
    at: Instant,
    error: E,
}

/// How far the end of a session has come.
#[derive(Debug, Clone, Copy)]
enum Ending {
    NotYet,
    Due(Cleanup),
    Given,
}

impl<M: Machine> SessionCore<M> {
    pub(crate) fn new(state: M) -> Self {
        Self {
            state,
            from_client: M::Input::default(),
            from_agent: M::Input::default(),
            to_client: Outbox::default(),
            to_agent: Outbox::default(),
            deadline: None,
            bye: false,
            client_eof: false,
            error: None,
            ending: Ending::NotYet,
        }
    }

    pub(crate) fn step(&mut self, event: M::Event) {
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

    pub(crate) fn has_room_for_client_bytes(&self) -> bool {
        !self.client_eof && self.to_agent.has_room() && self.to_client.has_room()
    }

    /// From now on something has to happen within a limit, if there is one.
    pub(crate) fn expect_within(
        &mut self,
        now: Instant,
        limit: impl Into<Option<Duration>>,
        error: impl FnOnce(Duration) -> M::Error,
    ) {
        self.deadline = limit.into().map(|limit| Deadline { at: now + limit, error: error(limit) });
    }

    pub(crate) fn expect_nothing(&mut self) {
        self.deadline = None;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.as_ref().map(|deadline| deadline.at)
    }

    pub(crate) fn timeout(&mut self, now: Instant) {
        if let Some(error) = self.expired(now) {
            self.fail(error);
        }
    }

    /// The error of a deadline that has passed, once.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<M::Error> {
        self.deadline.take_if(|deadline| deadline.at <= now).map(|deadline| deadline.error)
    }

    pub(crate) fn error(&self) -> Option<&M::Error> {
        self.error.as_ref()
    }

    /// Notes an error that doesn't end the session.
    pub(crate) fn note(&mut self, error: M::Error) {
        self.error.get_or_insert(error);
    }

    /// Ends with an error that the client is told of, if it can be.
    pub(crate) fn fail(&mut self, error: M::Error) {
        if self.state.is_live() {
            if self.state.takes_farewell() {
                self.to_client.push(error.farewell());
            }
            self.fail_silently(error);
        }
    }

    pub(crate) fn fail_silently(&mut self, error: M::Error) {
        if self.state.is_live() {
            self.error.get_or_insert(error);
            self.step(M::ERROR_OCCURRED);
            self.end(true);
        }
    }

    pub(crate) fn close(&mut self) {
        if self.state.is_live() {
            self.end(false);
        }
    }

    pub(crate) fn client_closed(&mut self, had_error: bool) {
        if !self.state.is_live() {
            return;
        }
        if had_error {
            self.fail_silently(M::Error::broken(Peer::Client));
        } else {
            self.close();
        }
        // Nobody is there to read it.
        self.to_client.clear();
    }

    pub(crate) fn agent_closed(&mut self, had_error: bool, client_waits: bool) {
        if !self.state.is_live() {
            return;
        }
        let error = M::Error::broken(Peer::Agent);
        if client_waits && !self.bye {
            self.to_client.push(error.farewell());
        }
        if had_error && !self.bye {
            self.fail_silently(error);
        } else {
            self.close();
        }
    }

    pub(crate) fn take_cleanup(&mut self) -> Option<Cleanup> {
        match self.ending {
            Ending::Due(cleanup) => {
                self.ending = Ending::Given;
                Some(cleanup)
            }
            Ending::NotYet | Ending::Given => None,
        }
    }

    pub(crate) fn cleanup_done(&mut self, outcome: Result<(), impl fmt::Display>) {
        if self.state != M::CLOSING {
            return;
        }
        match outcome {
            Ok(()) => self.step(M::CLEANUP_COMPLETE),
            Err(error) => {
                self.error.get_or_insert(M::Error::cleanup(error.to_string()));
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
