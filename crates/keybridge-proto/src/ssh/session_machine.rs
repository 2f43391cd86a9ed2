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

use crate::session::core::SessionState;
use crate::session::machine::{Machine, shared_ending};
use crate::ssh::{FrameCutter, SessionError};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no client yet, or no longer.
    Disconnected,
    /// The agent is being reached.
    ConnectingToAgent,
    /// The client may send a request.
    Ready,
    /// A request has begun, and isn't decided on.
    ReadingRequest,
    /// The request was refused. The rest of it is skipped, and then it is answered.
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
    /// The request is forwarded.
    RequestAllowed,
    /// The request is refused.
    RequestRefused,
    /// The end of a refused request came, and it is answered.
    RequestSkipped,
    /// The whole request was sent to the agent.
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

impl Machine for State {
    type Event = Event;

    shared_ending!();

    fn transitions(self) -> &'static [(Event, Self)] {
        use Event as E;
        use State as S;
        match self {
            S::Disconnected => &[(E::ClientConnectRequested, S::ConnectingToAgent)],
            S::ConnectingToAgent => &[
                (E::AgentSocketConnected, S::Ready),
                (E::AgentUnreachable, S::Ready),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::Ready => &[(E::RequestBegun, S::ReadingRequest), Self::FAILS, Self::CLOSES],
            S::ReadingRequest => &[
                (E::RequestAllowed, S::SendingToAgent),
                (E::RequestRefused, S::SkippingRequest),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::SkippingRequest => &[(E::RequestSkipped, S::Ready), Self::FAILS, Self::CLOSES],
            S::SendingToAgent => {
                &[(E::AgentWriteOk, S::WaitingForAgent), Self::FAILS, Self::CLOSES]
            }
            S::WaitingForAgent => {
                &[(E::AnswerBegun, S::SendingToClient), Self::FAILS, Self::CLOSES]
            }
            S::SendingToClient => &[(E::AnswerComplete, S::Ready), Self::FAILS, Self::CLOSES],
            S::Error => &[(E::CleanupRequested { had_error: true }, S::Closing)],
            S::Closing => &[(E::CleanupComplete, S::Disconnected), (E::CleanupError, S::Fatal)],
            S::Fatal => &[],
        }
    }
}

impl SessionState for State {
    type Input = FrameCutter;
    type Error = SessionError;

    /// A failure is an answer, so it can be sent only where one is due and none has begun.
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
}
