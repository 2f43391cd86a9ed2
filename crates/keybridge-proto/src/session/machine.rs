//! What the state machines of all sessions have in common: those of the request and the agent session
//! (gpg), the relay and the ssh session (ssh). The file of each opens with its diagram, and a test
//! compares every pair of state and event with a table that was written by hand.

use std::fmt::Debug;

/// The states of a session, and for each of them the events that it takes.
///
/// Implemented by the enum of the states. Names in logs and errors are those of `Debug`.
pub trait Machine: Copy + Eq + Debug + 'static {
    /// What can happen to the session.
    type Event: Copy + Eq + Debug + 'static;

    /// What every live state does when something fails.
    const FAILS: (Self::Event, Self);
    /// What every live state does when the session ends without an error.
    const CLOSES: (Self::Event, Self);
    /// Cleaning up is done.
    const CLEANUP_COMPLETE: Self::Event;
    /// Cleaning up failed.
    const CLEANUP_ERROR: Self::Event;

    /// The session is to end.
    fn cleanup_requested(had_error: bool) -> Self::Event;

    /// The events that this state takes, and the state that follows each of them. Every other event is
    /// invalid here.
    fn transitions(self) -> &'static [(Self::Event, Self)];

    /// The state that follows an event.
    fn next(self, event: Self::Event) -> Result<Self, InvalidTransition> {
        let taken = self.transitions().iter().find(|(taken, _)| *taken == event);
        taken.map(|(_, next)| *next).ok_or_else(|| InvalidTransition {
            state: format!("{self:?}"),
            event: format!("{event:?}"),
        })
    }

    /// Whether the session has begun and nothing has ended it.
    fn is_live(self) -> bool {
        self.transitions().contains(&Self::FAILS)
    }
}

/// The part of [`Machine`] that is the same for all: how a session fails, closes and is cleaned up.
macro_rules! shared_ending {
    () => {
        const FAILS: (Event, Self) = (Event::ErrorOccurred, Self::Error);
        const CLOSES: (Event, Self) = (Event::CleanupRequested { had_error: false }, Self::Closing);
        const CLEANUP_COMPLETE: Event = Event::CleanupComplete;
        const CLEANUP_ERROR: Event = Event::CleanupError;

        fn cleanup_requested(had_error: bool) -> Event {
            Event::CleanupRequested { had_error }
        }
    };
}

pub(crate) use shared_ending;

/// An event that a state doesn't take: a fault in the code that drives the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is invalid in state {state}")]
pub struct InvalidTransition {
    /// The name of the state.
    pub state: String,
    /// The name of the event.
    pub event: String,
}
