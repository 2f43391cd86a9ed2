//! What the state machines of all sessions have in common.

use std::fmt::Debug;

/// The states of a session, and for each of them the events that it takes.
///
/// Implemented by the enum of the states. Names in logs and errors are those of `Debug`.
pub trait Machine: Copy + Eq + Debug + 'static {
    /// What can happen to the session.
    type Event: Copy + Eq + Debug + 'static;

    /// Cleaning up is under way.
    const CLOSING: Self;
    /// Something failed. Taken by every state with a connection whose end matters, and by no other.
    const ERROR_OCCURRED: Self::Event;
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
        self.transitions().iter().any(|(taken, _)| *taken == Self::ERROR_OCCURRED)
    }
}

/// An event that a state doesn't take: a fault in the code that drives the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} is invalid in state {state}")]
pub struct InvalidTransition {
    /// The name of the state.
    pub state: String,
    /// The name of the event.
    pub event: String,
}
