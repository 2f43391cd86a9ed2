//! What both sessions hold while two sides talk.

use std::time::Instant;

use super::outbox::Outbox;
use super::{Cleanup, SessionError};
use crate::assuan::LineBuffer;

/// Lines on their way in, bytes on their way out, and how the talk is to end.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) from_client: LineBuffer,
    pub(super) from_agent: LineBuffer,
    pub(super) to_client: Outbox,
    pub(super) to_agent: Outbox,
    pub(super) deadline: Option<Deadline>,
    /// The command under way is BYE: the agent may close before or after its OK.
    pub(super) bye: bool,
    pub(super) client_eof: bool,
    /// The first error; later ones follow from it.
    pub(super) error: Option<SessionError>,
    ending: Ending,
}

/// A moment by which something has to have happened, and the error if it hasn't.
#[derive(Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) error: SessionError,
}

/// How far the end of a session has come.
#[derive(Debug, Default, Clone, Copy)]
enum Ending {
    #[default]
    NotYet,
    Due(Cleanup),
    Given,
}

impl Exchange {
    pub(super) fn has_room_for_client_bytes(&self) -> bool {
        !self.client_eof && self.to_agent.has_room() && self.to_client.has_room()
    }

    /// The error of a deadline that has passed.
    pub(super) fn expired(&mut self, now: Instant) -> Option<SessionError> {
        self.deadline.take_if(|deadline| deadline.at <= now).map(|deadline| deadline.error)
    }

    /// Nothing more goes to the agent, and the cleanup is due.
    pub(super) fn end(&mut self, had_error: bool) {
        self.deadline = None;
        self.to_agent.clear();
        self.ending = Ending::Due(Cleanup { had_error });
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
}
