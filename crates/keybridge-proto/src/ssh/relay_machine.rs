//! The machine of a relay of the ssh lane.
//!
//! ```text
//!  Disconnected ◀───────────────────────────────────────────────────────────┐
//!       │ ClientSocketConnected                                             │
//!       ▼                                                                   │
//!  ConnectingToAgent ── AgentUnreachable ──┐                                │
//!       │ StreamOpened                     ▼                                │
//!       └──▶ Relaying ── AgentLost ──▶ Refusing                             │
//!                                                                           │
//!  any of these ── ErrorOccurred ──▶ Error ─┐ CleanupRequested{true}        │
//!       └───────── CleanupRequested{false} ─┴─▶ Closing ── CleanupComplete ─┘
//!                                                  └── CleanupError ──▶ Fatal
//! ```

use crate::session::core::SessionState;
use crate::session::machine::{Machine, shared_ending};
use crate::ssh::{FrameCutter, SessionError};

/// Where a relay stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no client yet, or no longer.
    Disconnected,
    /// The stream to the agent is being opened.
    ConnectingToAgent,
    /// Requests and answers pass.
    Relaying,
    /// There is no agent, and each request is refused.
    Refusing,
    /// Something failed; cleaning up comes next.
    Error,
    /// Cleaning up is under way.
    Closing,
    /// Cleaning up failed. The session is never used again.
    Fatal,
}

/// What can happen to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client connected.
    ClientSocketConnected,
    /// The stream to the agent is open.
    StreamOpened,
    /// There is no stream; every request will be refused.
    AgentUnreachable,
    /// The link is lost; every request that is unanswered and all later ones are refused.
    AgentLost,
    /// Something failed.
    ErrorOccurred,
    /// The session is to end.
    CleanupRequested {
        /// Whether an error led here.
        had_error: bool,
    },
    /// Everything was closed.
    CleanupComplete,
    /// Something could not be closed.
    CleanupError,
}

impl Machine for State {
    type Event = Event;

    shared_ending!();

    fn transitions(self) -> &'static [(Event, Self)] {
        use Event as E;
        use State as S;
        match self {
            S::Disconnected => &[(E::ClientSocketConnected, S::ConnectingToAgent)],
            S::ConnectingToAgent => &[
                (E::StreamOpened, S::Relaying),
                (E::AgentUnreachable, S::Refusing),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::Relaying => &[(E::AgentLost, S::Refusing), Self::FAILS, Self::CLOSES],
            S::Refusing => &[Self::FAILS, Self::CLOSES],
            S::Error => &[(E::CleanupRequested { had_error: true }, S::Closing)],
            S::Closing => &[(E::CleanupComplete, S::Disconnected), (E::CleanupError, S::Fatal)],
            S::Fatal => &[],
        }
    }
}

impl SessionState for State {
    type Input = FrameCutter;
    type Error = SessionError;

    /// A failure is an answer: while an agent answers, a further one would be one too many.
    fn takes_farewell(self) -> bool {
        match self {
            Self::Refusing => true,
            Self::Disconnected
            | Self::ConnectingToAgent
            | Self::Relaying
            | Self::Error
            | Self::Closing
            | Self::Fatal => false,
        }
    }
}
