//! The machine of a session of the ssh lane.
//!
//! ```text
//!  Disconnected ◀──────────────────────────────────────────────────────────┐
//!       │ ClientConnectRequested                                           │
//!       ▼                                                                  │
//!  ConnectingToAgent                                                       │
//!       │ AgentSocketConnected, AgentUnreachable                           │
//!       ▼                                                                  │
//!     Ready ── RequestBegun ──▶ ReadingRequest                             │
//!       ▲                        │           │                             │
//!       │          RequestRefused│           │RequestAllowed               │
//!       │                        ▼           ▼                             │
//!       ├─ RequestSkipped ─ SkippingRequest  SendingToAgent                │
//!       │                                    │ AgentWriteOk                │
//!       │                                    ▼                             │
//!       │                                    WaitingForAgent               │
//!       │                                    │ AnswerBegun                 │
//!       │                                    ▼                             │
//!       └───────────── AnswerComplete ────── SendingToClient               │
//!                                                                          │
//!  any of these ── ErrorOccurred ──▶ Error ─┐ CleanupRequested{true}       │
//!       └───────── CleanupRequested{false} ─┴─▶ Closing ─ CleanupComplete ─┘
//!                                                  └── CleanupError ──▶ Fatal
//! ```

use crate::session::InvalidTransition;
use crate::session::core::Machine;
use crate::ssh::{FrameCutter, SessionError};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no client, or no longer.
    Disconnected,
    /// The agent is being reached.
    ConnectingToAgent,
    /// The client may send a request.
    Ready,
    /// A request has begun, and nothing is decided.
    ReadingRequest,
    /// The agent doesn't get the request. Its rest is passed over, and then it is answered.
    SkippingRequest,
    /// The request is on its way to the agent.
    SendingToAgent,
    /// The agent works.
    WaitingForAgent,
    /// The answer is on its way to the client.
    SendingToClient,
    /// Something failed; cleaning up comes next.
    Error,
    /// Cleaning up is under way.
    Closing,
    /// Cleaning up failed. The session is never used again.
    Fatal,
}

/// What can happen to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client wants to talk to the agent.
    ClientConnectRequested,
    /// The agent's socket is connected.
    AgentSocketConnected,
    /// There is no agent; every request will be refused.
    AgentUnreachable,
    /// The first byte of a request came.
    RequestBegun,
    /// The request may go on.
    RequestAllowed,
    /// The request may not.
    RequestRefused,
    /// The end of a request that may not go on came, and it is answered.
    RequestSkipped,
    /// The whole request was taken by the agent.
    AgentWriteOk,
    /// An answer has begun.
    AnswerBegun,
    /// The end of an answer came.
    AnswerComplete,
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
            E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun | E::RequestAllowed
            | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun | E::AnswerComplete
            | E::ErrorOccurred | E::CleanupRequested { had_error: true | false }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::ConnectingToAgent => match event {
            E::AgentSocketConnected | E::AgentUnreachable => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::RequestBegun | E::RequestAllowed | E::RequestRefused
            | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Ready => match event {
            E::RequestBegun => Ok(S::ReadingRequest),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestAllowed
            | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::ReadingRequest => match event {
            E::RequestAllowed => Ok(S::SendingToAgent),
            E::RequestRefused => Ok(S::SkippingRequest),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SkippingRequest => match event {
            E::RequestSkipped => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::AgentWriteOk | E::AnswerBegun | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SendingToAgent => match event {
            E::AgentWriteOk => Ok(S::WaitingForAgent),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AnswerBegun | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::WaitingForAgent => match event {
            E::AnswerBegun => Ok(S::SendingToClient),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerComplete
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::SendingToClient => match event {
            E::AnswerComplete => Ok(S::Ready),
            E::ErrorOccurred => Ok(S::Error),
            E::CleanupRequested { had_error: false } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun
            | E::CleanupRequested { had_error: true } | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Error => match event {
            E::CleanupRequested { had_error: true } => Ok(S::Closing),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun
            | E::AnswerComplete | E::ErrorOccurred | E::CleanupRequested { had_error: false }
            | E::CleanupComplete | E::CleanupError => invalid,
        },
        S::Closing => match event {
            E::CleanupComplete => Ok(S::Disconnected),
            E::CleanupError => Ok(S::Fatal),
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun
            | E::AnswerComplete | E::ErrorOccurred
            | E::CleanupRequested { had_error: true | false } => invalid,
        },
        S::Fatal => match event {
            E::ClientConnectRequested | E::AgentSocketConnected | E::AgentUnreachable | E::RequestBegun
            | E::RequestAllowed | E::RequestRefused | E::RequestSkipped | E::AgentWriteOk | E::AnswerBegun
            | E::AnswerComplete | E::ErrorOccurred | E::CleanupRequested { had_error: true | false }
            | E::CleanupComplete | E::CleanupError => invalid,
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
    type Input = FrameCutter;
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
            | Self::ReadingRequest
            | Self::SkippingRequest
            | Self::SendingToAgent
            | Self::WaitingForAgent
            | Self::SendingToClient => true,
            Self::Disconnected | Self::Error | Self::Closing | Self::Fatal => false,
        }
    }

    /// A failure is an answer: it has its place where one is owed and none has begun.
    fn takes_farewell(self) -> bool {
        match self {
            Self::ReadingRequest
            | Self::SkippingRequest
            | Self::SendingToAgent
            | Self::WaitingForAgent => true,
            Self::Disconnected
            | Self::ConnectingToAgent
            | Self::Ready
            | Self::SendingToClient
            | Self::Error
            | Self::Closing
            | Self::Fatal => false,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "Disconnected",
            Self::ConnectingToAgent => "ConnectingToAgent",
            Self::Ready => "Ready",
            Self::ReadingRequest => "ReadingRequest",
            Self::SkippingRequest => "SkippingRequest",
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
            Self::ClientConnectRequested => "ClientConnectRequested",
            Self::AgentSocketConnected => "AgentSocketConnected",
            Self::AgentUnreachable => "AgentUnreachable",
            Self::RequestBegun => "RequestBegun",
            Self::RequestAllowed => "RequestAllowed",
            Self::RequestRefused => "RequestRefused",
            Self::RequestSkipped => "RequestSkipped",
            Self::AgentWriteOk => "AgentWriteOk",
            Self::AnswerBegun => "AnswerBegun",
            Self::AnswerComplete => "AnswerComplete",
            Self::ErrorOccurred => "ErrorOccurred",
            Self::CleanupRequested { .. } => "CleanupRequested",
            Self::CleanupComplete => "CleanupComplete",
            Self::CleanupError => "CleanupError",
        }
    }
}
