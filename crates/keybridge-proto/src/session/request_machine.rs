//! The machine of the request session.
//!
//! ```text
//!  Disconnected ◀───────────────────────────────────────────────────────────┐
//!       │ ClientSocketConnected                                             │
//!       ▼                                                                   │
//!  ConnectingToAgent                                                        │
//!       │ AgentGreetingOk                                                   │
//!       ▼                        ClientDataPartial                          │
//!     Ready ──ClientDataStart──▶ BufferingCommand ─┐ ClientDataComplete     │
//!       ▲                                          ▼                        │
//!       │                  ┌───────────────▶ SendingToAgent                 │
//!       │                  │ ClientData            │ WriteOk                │
//!       │ ResponseOkOrErr  │ Complete              ▼                        │
//!       │                  │                 WaitingForAgent                │
//!       │                  │                       │ AgentResponseComplete  │
//!       │   ResponseInquire│                       ▼                        │
//!       ├──────────────────┼──────────────── SendingToClient ◀─┐ WriteOk    │
//!       │                  │                       ▲      └────┘            │
//!       │           BufferingInquire ──────────────┘                        │
//!       │            └──┘ ClientDataPartial   AgentResponseComplete         │
//!       │                                     (the agent ends it early)     │
//!       │                                                                   │
//!  any of these ── ErrorOccurred ──▶ Error ─┐ CleanupRequested{true}        │
//!       └───────── CleanupRequested{false} ─┴─▶ Closing ── CleanupComplete ─┘
//!                                                  └── CleanupError ──▶ Fatal
//! ```

use crate::assuan::LineBuffer;
use crate::session::SessionError;
use crate::session::core::SessionState;
use crate::session::machine::{Machine, shared_ending};

/// Where a request session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no client yet, or no longer.
    Disconnected,
    /// The agent is being reached, or its greeting is awaited.
    ConnectingToAgent,
    /// The client may send a command.
    Ready,
    /// A command has begun.
    BufferingCommand,
    /// The agent waits for data of the client.
    BufferingInquire,
    /// A command or the end of an inquiry is on its way to the agent.
    SendingToAgent,
    /// The agent works.
    WaitingForAgent,
    /// The end of a response is on its way to the client.
    SendingToClient,
    /// Something failed; cleaning up comes next.
    Error,
    /// Cleaning up is under way.
    Closing,
    /// Cleaning up failed. The session is never used again.
    Fatal,
}

/// What can happen to a request session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client connected.
    ClientSocketConnected,
    /// The first bytes of a command came.
    ClientDataStart,
    /// More came, but not yet the line that the agent answers.
    ClientDataPartial,
    /// The line that the agent answers is whole.
    ClientDataComplete,
    /// The agent greeted with OK.
    AgentGreetingOk,
    /// The line that ends a response came.
    AgentResponseComplete,
    /// That line was OK or ERR.
    ResponseOkOrErr,
    /// That line was INQUIRE.
    ResponseInquire,
    /// Everything was sent.
    WriteOk,
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
            S::ConnectingToAgent => &[(E::AgentGreetingOk, S::Ready), Self::FAILS, Self::CLOSES],
            S::Ready => &[(E::ClientDataStart, S::BufferingCommand), Self::FAILS, Self::CLOSES],
            S::BufferingCommand => &[
                (E::ClientDataPartial, S::BufferingCommand),
                (E::ClientDataComplete, S::SendingToAgent),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::BufferingInquire => &[
                (E::ClientDataPartial, S::BufferingInquire),
                (E::ClientDataComplete, S::SendingToAgent),
                (E::AgentResponseComplete, S::SendingToClient),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::SendingToAgent => &[(E::WriteOk, S::WaitingForAgent), Self::FAILS, Self::CLOSES],
            S::WaitingForAgent => {
                &[(E::AgentResponseComplete, S::SendingToClient), Self::FAILS, Self::CLOSES]
            }
            S::SendingToClient => &[
                (E::WriteOk, S::SendingToClient),
                (E::ResponseOkOrErr, S::Ready),
                (E::ResponseInquire, S::BufferingInquire),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::Error => &[(E::CleanupRequested { had_error: true }, S::Closing)],
            S::Closing => &[(E::CleanupComplete, S::Disconnected), (E::CleanupError, S::Fatal)],
            S::Fatal => &[],
        }
    }
}

impl SessionState for State {
    type Input = LineBuffer;
    type Error = SessionError;

    fn takes_farewell(self) -> bool {
        // Every client of Assuan can read another line.
        true
    }
}

impl State {
    /// Whether the client may send something.
    pub(crate) const fn is_clients_turn(self) -> bool {
        match self {
            Self::Ready | Self::BufferingCommand | Self::BufferingInquire => true,
            Self::Disconnected
            | Self::ConnectingToAgent
            | Self::SendingToAgent
            | Self::WaitingForAgent
            | Self::SendingToClient
            | Self::Error
            | Self::Closing
            | Self::Fatal => false,
        }
    }

    /// Whether the client waits for a line, so that it needs an error if none will come.
    pub(crate) const fn owes_an_answer(self) -> bool {
        match self {
            Self::ConnectingToAgent
            | Self::BufferingCommand
            | Self::BufferingInquire
            | Self::SendingToAgent
            | Self::WaitingForAgent => true,
            Self::Disconnected
            | Self::Ready
            | Self::SendingToClient
            | Self::Error
            | Self::Closing
            | Self::Fatal => false,
        }
    }
}
