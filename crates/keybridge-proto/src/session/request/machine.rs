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
use crate::session::core::Machine;
use crate::session::{InvalidTransition, SessionError};

/// Where a request session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no client, or no longer.
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
    /// What was to be sent was taken.
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

/// The whole machine: the state that follows, or the news that the event has no place there.
#[rustfmt::skip]
pub fn transition(state: State, event: Event) -> Result<State, InvalidTransition> {
    use Event as E;
    use State as S;
    let invalid = Err(InvalidTransition { state: state.name(), event: event.name() });
    match state {
        S::Disconnected => match event {
            E::ClientSocketConnected => Ok(S::ConnectingToAgent),
            E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete | E::AgentGreetingOk
            | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire | E::WriteOk
            | E::ErrorOccurred | E::CleanupRequested { had_error: true | false } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::ConnectingToAgent => match event {
            E::AgentGreetingOk => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire | E::WriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Ready => match event {
            E::ClientDataStart => Ok(S::BufferingCommand),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataPartial | E::ClientDataComplete | E::AgentGreetingOk
            | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire | E::WriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::BufferingCommand => match event {
            E::ClientDataPartial => Ok(S::BufferingCommand),
            E::ClientDataComplete => Ok(S::SendingToAgent),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::AgentGreetingOk | E::AgentResponseComplete
            | E::ResponseOkOrErr | E::ResponseInquire | E::WriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::BufferingInquire => match event {
            E::ClientDataPartial => Ok(S::BufferingInquire),
            E::ClientDataComplete => Ok(S::SendingToAgent),
            E::AgentResponseComplete => Ok(S::SendingToClient),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::AgentGreetingOk | E::ResponseOkOrErr
            | E::ResponseInquire | E::WriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SendingToAgent => match event {
            E::WriteOk => Ok(S::WaitingForAgent),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::WaitingForAgent => match event {
            E::AgentResponseComplete => Ok(S::SendingToClient),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::ResponseOkOrErr | E::ResponseInquire | E::WriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SendingToClient => match event {
            E::WriteOk => Ok(S::SendingToClient),
            E::ResponseOkOrErr => Ok(S::Ready),
            E::ResponseInquire => Ok(S::BufferingInquire),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::AgentResponseComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Error => match event {
            E::CleanupRequested { had_error: true } => Ok(S::Closing),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire
            | E::WriteOk | E::ErrorOccurred | E::CleanupRequested { had_error: false }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Closing => match event {
            E::CleanupComplete => Ok(S::Disconnected),
            E::CleanupError => Ok(S::Fatal),
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire
            | E::WriteOk | E::ErrorOccurred | E::CleanupRequested { had_error: true | false } => invalid,
        },
        S::Fatal => match event {
            E::ClientSocketConnected | E::ClientDataStart | E::ClientDataPartial | E::ClientDataComplete
            | E::AgentGreetingOk | E::AgentResponseComplete | E::ResponseOkOrErr | E::ResponseInquire
            | E::WriteOk | E::ErrorOccurred | E::CleanupRequested { had_error: true | false }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
    }
}

impl State {
    /// Whether the client waits for a line, so that it has to be told when none will come.
    pub(super) const fn owes_an_answer(self) -> bool {
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

impl Machine for State {
    type Event = Event;
    type Input = LineBuffer;
    type Error = SessionError;

    const CLOSING: Self = Self::Closing;
    const ERROR_OCCURRED: Event = Event::ErrorOccurred;
    const CLEANUP_COMPLETE: Event = Event::CleanupComplete;
    const CLEANUP_ERROR: Event = Event::CleanupError;

    fn cleanup_requested(had_error: bool) -> Event {
        Event::CleanupRequested { had_error }
    }

    fn next(self, event: Event) -> Result<Self, InvalidTransition> {
        transition(self, event)
    }

    fn is_live(self) -> bool {
        match self {
            Self::ConnectingToAgent
            | Self::Ready
            | Self::BufferingCommand
            | Self::BufferingInquire
            | Self::SendingToAgent
            | Self::WaitingForAgent
            | Self::SendingToClient => true,
            Self::Disconnected | Self::Error | Self::Closing | Self::Fatal => false,
        }
    }

    fn takes_farewell(self) -> bool {
        // A line more is what every client of Assuan can read.
        true
    }

    fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "Disconnected",
            Self::ConnectingToAgent => "ConnectingToAgent",
            Self::Ready => "Ready",
            Self::BufferingCommand => "BufferingCommand",
            Self::BufferingInquire => "BufferingInquire",
            Self::SendingToAgent => "SendingToAgent",
            Self::WaitingForAgent => "WaitingForAgent",
            Self::SendingToClient => "SendingToClient",
            Self::Error => "Error",
            Self::Closing => "Closing",
            Self::Fatal => "Fatal",
        }
    }

    fn event_name(event: Event) -> &'static str {
        event.name()
    }
}

impl Event {
    const fn name(self) -> &'static str {
        match self {
            Self::ClientSocketConnected => "ClientSocketConnected",
            Self::ClientDataStart => "ClientDataStart",
            Self::ClientDataPartial => "ClientDataPartial",
            Self::ClientDataComplete => "ClientDataComplete",
            Self::AgentGreetingOk => "AgentGreetingOk",
            Self::AgentResponseComplete => "AgentResponseComplete",
            Self::ResponseOkOrErr => "ResponseOkOrErr",
            Self::ResponseInquire => "ResponseInquire",
            Self::WriteOk => "WriteOk",
            Self::ErrorOccurred => "ErrorOccurred",
            Self::CleanupRequested { .. } => "CleanupRequested",
            Self::CleanupComplete => "CleanupComplete",
            Self::CleanupError => "CleanupError",
        }
    }
}
