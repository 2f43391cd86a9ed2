//! The machine of the agent session.
//!
//! ```text
//!  Disconnected ◀────────────────────────────────────────────────────────┐
//!       │ ClientConnectRequested                                         │
//!       ▼                                                                │
//!  ConnectingToAgent                                                     │
//!       │ AgentSocketConnected                                           │
//!       ▼                                                                │
//!  SocketConnected                                                       │
//!       │ ClientDataReceived (the nonce of a TCP socket; nothing on Unix)│
//!       ▼                                                                │
//!  SendingToAgent ◀── ClientDataReceived ── Ready ◀─┐ AgentDataChunk,    │
//!       │ AgentWriteOk                       ▲ └────┘ AgentDataReceived  │
//!       ▼                                    │   (an inquiry ended early)│
//!  WaitingForAgent ──── AgentDataReceived ───┘                           │
//!    └──┘ AgentDataChunk                                                 │
//!                                                                        │
//!  any of these ── ErrorOccurred ──▶ Error ─┐ CleanupRequested{true}     │
//!       └───────── CleanupRequested{false} ─┴─▶ Closing ─ CleanupComplete┘
//!                                                  └── CleanupError ──▶ Fatal
//! ```

use crate::assuan::LineBuffer;
use crate::session::core::Machine;
use crate::session::{InvalidTransition, SessionError};

/// Where an agent session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no connection to the agent, or no longer.
    Disconnected,
    /// The agent is being reached.
    ConnectingToAgent,
    /// The socket is connected; nothing was sent.
    SocketConnected,
    /// The agent waits for a command or for the data of an inquiry.
    Ready,
    /// The nonce, a command or the end of an inquiry is on its way to the agent.
    SendingToAgent,
    /// The agent works.
    WaitingForAgent,
    /// Something failed; cleaning up comes next.
    Error,
    /// Cleaning up is under way.
    Closing,
    /// Cleaning up failed. The session is never used again.
    Fatal,
}

/// What can happen to an agent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client wants to talk to the agent.
    ClientConnectRequested,
    /// There is something to send that the agent answers.
    ClientDataReceived,
    /// The socket is connected.
    AgentSocketConnected,
    /// What was to be sent was taken.
    AgentWriteOk,
    /// A part of a response came.
    AgentDataChunk,
    /// The end of a response came.
    AgentDataReceived,
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
            E::ClientConnectRequested => Ok(S::ConnectingToAgent),
            E::ClientDataReceived | E::AgentSocketConnected | E::AgentWriteOk | E::AgentDataChunk
            | E::AgentDataReceived | E::ErrorOccurred | E::CleanupRequested { had_error: true | false }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::ConnectingToAgent => match event {
            E::AgentSocketConnected => Ok(S::SocketConnected),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentWriteOk | E::AgentDataChunk
            | E::AgentDataReceived | E::CleanupRequested { had_error: true }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SocketConnected => match event {
            E::ClientDataReceived => Ok(S::SendingToAgent),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentWriteOk | E::AgentDataChunk
            | E::AgentDataReceived | E::CleanupRequested { had_error: true }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Ready => match event {
            E::ClientDataReceived => Ok(S::SendingToAgent),
            E::AgentDataChunk | E::AgentDataReceived => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentWriteOk
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SendingToAgent => match event {
            E::AgentWriteOk => Ok(S::WaitingForAgent),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentSocketConnected
            | E::AgentDataChunk | E::AgentDataReceived | E::CleanupRequested { had_error: true }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::WaitingForAgent => match event {
            E::AgentDataChunk => Ok(S::WaitingForAgent),
            E::AgentDataReceived => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentSocketConnected
            | E::AgentWriteOk | E::CleanupRequested { had_error: true }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Error => match event {
            E::CleanupRequested { had_error: true } => Ok(S::Closing),
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentSocketConnected
            | E::AgentWriteOk | E::AgentDataChunk | E::AgentDataReceived | E::ErrorOccurred
            | E::CleanupRequested { had_error: false } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Closing => match event {
            E::CleanupComplete => Ok(S::Disconnected),
            E::CleanupError => Ok(S::Fatal),
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentSocketConnected
            | E::AgentWriteOk | E::AgentDataChunk | E::AgentDataReceived | E::ErrorOccurred
            | E::CleanupRequested { had_error: true | false } => invalid,
        },
        S::Fatal => match event {
            E::ClientConnectRequested | E::ClientDataReceived | E::AgentSocketConnected
            | E::AgentWriteOk | E::AgentDataChunk | E::AgentDataReceived | E::ErrorOccurred
            | E::CleanupRequested { had_error: true | false } | E::CleanupComplete
            | E::CleanupError => invalid,
        },
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
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
            | Self::SocketConnected
            | Self::Ready
            | Self::SendingToAgent
            | Self::WaitingForAgent => true,
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
            Self::SocketConnected => "SocketConnected",
            Self::Ready => "Ready",
            Self::SendingToAgent => "SendingToAgent",
            Self::WaitingForAgent => "WaitingForAgent",
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
            Self::ClientConnectRequested => "ClientConnectRequested",
            Self::ClientDataReceived => "ClientDataReceived",
            Self::AgentSocketConnected => "AgentSocketConnected",
            Self::AgentWriteOk => "AgentWriteOk",
            Self::AgentDataChunk => "AgentDataChunk",
            Self::AgentDataReceived => "AgentDataReceived",
            Self::ErrorOccurred => "ErrorOccurred",
            Self::CleanupRequested { .. } => "CleanupRequested",
            Self::CleanupComplete => "CleanupComplete",
            Self::CleanupError => "CleanupError",
        }
    }
}
