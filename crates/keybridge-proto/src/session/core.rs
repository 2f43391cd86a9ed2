//! What all sessions have in common: a machine, bytes on their way in and out, deadlines and the end.

use std::fmt;
use std::time::{Duration, Instant};

use super::machine::{InvalidTransition, Machine};
use super::{Cleanup, Peer};
use crate::assuan::escape_into;

/// A session's machine, with what the core needs to know about its protocol.
pub trait SessionState: Machine {
    /// Cuts incoming bytes into units of the protocol.
    type Input: Default + fmt::Debug;
    /// Why the session ended early.
    type Error: Fault;

    /// Whether an error can be sent to the client.
    fn takes_farewell(self) -> bool;
}

/// An error of a session.
pub trait Fault: std::error::Error + From<InvalidTransition> {
    fn broken(peer: Peer) -> Self;
    fn cleanup(reason: String) -> Self;
    /// What is sent to the client instead of the agent's answer.
    fn farewell(&self) -> &'static [u8];
}

/// A session that is built around a core. Private, so that only this crate can implement
/// [`Session`](super::Session).
pub trait HasCore {
    type State: SessionState;

    fn core(&self) -> &SessionCore<Self::State>;
    fn core_mut(&mut self) -> &mut SessionCore<Self::State>;

    /// Takes some bytes of the client. Returns how many; 0 if it has to wait for something else. The
    /// session fails with an error.
    fn take_from_client(&mut self, input: &[u8]) -> Result<usize, ErrorOf<Self>>;

    /// The same for bytes of the agent.
    fn take_from_agent(&mut self, input: &[u8]) -> Result<usize, ErrorOf<Self>>;
}

pub(crate) type ErrorOf<T> = <<T as HasCore>::State as SessionState>::Error;

/// Passes `input` on piece by piece, while the session takes it. Returns how much it took: all of it
/// after an error, since the rest isn't needed.
pub(super) fn take_while<T: HasCore>(
    session: &mut T,
    input: &[u8],
    takes: impl Fn(&T) -> bool,
    mut take: impl FnMut(&mut T, &[u8]) -> Result<usize, ErrorOf<T>>,
) -> usize {
    let mut done = 0;
    while let Some(rest) = input.get(done..).filter(|rest| !rest.is_empty())
        && takes(session)
    {
        match take(session, rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) => {
                session.core_mut().fail(error);
                return input.len();
            }
        }
    }
    done
}

/// The part of a session that doesn't depend on its protocol.
#[derive(Debug)]
pub struct SessionCore<S: SessionState> {
    pub(crate) state: S,
    pub(crate) from_client: S::Input,
    pub(crate) from_agent: S::Input,
    pub(crate) to_client: Outbox,
    pub(crate) to_agent: Outbox,
    deadline: Option<Deadline<S::Error>>,
    /// The command under way is BYE: the agent may close before or after its OK.
    pub(crate) bye: bool,
    pub(crate) client_eof: bool,
    /// The first error; later ones follow from it.
    error: Option<S::Error>,
    ending: Ending,
}

/// By when something has to happen, and the error if it doesn't.
#[derive(Debug)]
struct Deadline<E> {
    at: Instant,
    error: E,
}

/// Whether the caller has received the work of cleaning up.
#[derive(Debug, Clone, Copy)]
enum Ending {
    NotYet,
    Due(Cleanup),
    Given,
}

impl<S: SessionState> SessionCore<S> {
    pub(crate) fn new(state: S) -> Self {
        Self {
            state,
            from_client: S::Input::default(),
            from_agent: S::Input::default(),
            to_client: Outbox::default(),
            to_agent: Outbox::default(),
            deadline: None,
            bye: false,
            client_eof: false,
            error: None,
            ending: Ending::NotYet,
        }
    }

    pub(crate) fn step(&mut self, event: S::Event) {
        match self.state.next(event) {
            Ok(next) => {
                tracing::trace!(from = ?self.state, ?event, to = ?next);
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

    /// Sets the deadline, if there is a limit.
    pub(crate) fn expect_within(
        &mut self,
        now: Instant,
        limit: impl Into<Option<Duration>>,
        error: impl FnOnce(Duration) -> S::Error,
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

    /// The error of a deadline that has passed; returned once.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<S::Error> {
        self.deadline.take_if(|deadline| deadline.at <= now).map(|deadline| deadline.error)
    }

    pub(crate) fn error(&self) -> Option<&S::Error> {
        self.error.as_ref()
    }

    /// Records an error that doesn't end the session.
    pub(crate) fn note(&mut self, error: S::Error) {
        self.error.get_or_insert(error);
    }

    /// Ends with an error, and tells the client if possible.
    pub(crate) fn fail(&mut self, error: S::Error) {
        if self.state.is_live() {
            if self.state.takes_farewell() {
                self.to_client.push(error.farewell());
            }
            self.fail_silently(error);
        }
    }

    pub(crate) fn fail_silently(&mut self, error: S::Error) {
        if self.state.is_live() {
            self.error.get_or_insert(error);
            self.step(S::FAILS.0);
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
            self.fail_silently(S::Error::broken(Peer::Client));
        } else {
            self.close();
        }
        // The client is gone.
        self.to_client.clear();
    }

    pub(crate) fn agent_closed(&mut self, had_error: bool, client_waits: bool) {
        if !self.state.is_live() {
            return;
        }
        let error = S::Error::broken(Peer::Agent);
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
        if self.state != S::CLOSES.1 {
            return;
        }
        match outcome {
            Ok(()) => self.step(S::CLEANUP_COMPLETE),
            Err(error) => {
                self.error.get_or_insert(S::Error::cleanup(error.to_string()));
                self.step(S::CLEANUP_ERROR);
            }
        }
    }

    /// Nothing more goes to the agent, and the cleanup is due.
    fn end(&mut self, had_error: bool) {
        self.step(S::cleanup_requested(had_error));
        self.deadline = None;
        self.to_agent.clear();
        self.ending = Ending::Due(Cleanup { had_error });
    }
}

/// A session stops taking input while this much waits to be sent: some lines, so that a run of
/// small ones goes out in one write, and little enough for hundreds of sessions.
const HIGH_WATER: usize = 32 * 1024;

/// Bytes that wait to be sent. Keeps its capacity when it is empty, so that a steady flow of lines
/// allocates nothing.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

// The bytes may be secret.
impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({} bytes)", self.pending().len())
    }
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds data of a `D` line.
    pub(crate) fn push_escaped(&mut self, data: &[u8]) {
        escape_into(&mut self.bytes, data);
    }

    pub(crate) fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Drops bytes that were sent.
    pub(crate) fn took(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether more may be added. Sent bytes count until all are sent, so that it can't grow without
    /// bound.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() < HIGH_WATER
    }
}
