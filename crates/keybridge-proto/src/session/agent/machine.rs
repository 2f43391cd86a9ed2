//! The machine of the agent session: its states, and the phase that says what they are for.
//!
//! ```text
//!  Disconnected ◀────────────────────────────────────────────────────────┐
//!       │ ClientConnectRequested                                         │
//!       ▼                                                                │
//!  ConnectingToAgent                                                     │
//!       │ AgentSocketConnected                                           │
//!       ▼                                                                │
//!  SocketConnected                                                       │
//!       │ ClientDataReceived (1)                                         │
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
//!
//! The state says whose turn it is; the phase says what the agent's next line will mean. Once the
//! socket is connected, the session is in one of these phases:
//!
//! ```text
//!  Opening ── nonce exchanged ──▶ Greeting ─┬─ OK, extra socket (2) ──▶ Proof ── OK ──▶ Open
//!                                           └─ OK, main socket ───────────────────────▶ Open
//!
//!  Open ─┬─ OK, ERR ────────────────────────────────────────────────────────────────────▶ Open
//!        ├─ ERR Forbidden for KEYINFO (3) ──▶ KeyinfoFallback ── OK, ERR ───────────────▶ Open
//!        └─ INQUIRE ──▶ Inquiry ─┬─ END, CAN, OK, ERR ──────────────────────────────────▶ Open
//!                                └─ denied line (4) ──▶ DeniedInquiry ── OK, ERR ───────▶ Open
//!                                                         └──┘ INQUIRE (4)
//! ```
//!
//! A phase takes as many turns as it needs, each of them sending, waiting and ready. In all phases but
//! Open and Inquiry the session itself is the client: it fires `ClientDataReceived` for bytes of its
//! own, while the client's bytes wait:
//!
//! 1. the nonce of a TCP socket; a Unix socket needs none, and nothing is sent;
//! 2. `GETINFO restricted`, with which the socket proves that it is the restricted one;
//! 3. `HAVEKEY`, after an agent before 2.3 has forbidden `KEYINFO`;
//! 4. `CAN`, after the gate has denied a line of an inquiry.

use super::keyinfo_fallback::KeyinfoFallback;
use crate::Secret;
use crate::assuan::LineBuffer;
use crate::session::SessionError;
use crate::session::core::SessionState;
use crate::session::machine::{Machine, shared_ending};
use crate::socket_file::Opening;

/// Where an agent session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no connection to the agent yet, or no longer.
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
    /// The client, or the session in its place, has sent something that the agent answers.
    ClientDataReceived,
    /// The socket is connected.
    AgentSocketConnected,
    /// Everything was sent.
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

/// What the agent's next line means to a session. See the diagram above.
#[derive(Debug)]
pub(super) enum Phase {
    /// The nonce of a TCP socket is exchanged; `received` is what has come of the bytes that are due
    /// next.
    Opening { opening: Opening, received: Secret<Vec<u8>> },
    /// The greeting is awaited.
    Greeting,
    /// The greeting is held until the socket has proven that it is restricted.
    Proof { greeting: Vec<u8> },
    /// The client talks to the agent.
    Open {
        /// The key that the `KEYINFO` under way asks about, if the session can answer in the agent's
        /// place.
        keyinfo: Option<[u8; 40]>,
    },
    /// The agent waits for data of the client.
    Inquiry,
    /// The gate denied a line of an inquiry, and the inquiry was cancelled. The client gets the denial in
    /// place of the agent's answer.
    DeniedInquiry,
    /// The agent forbade `KEYINFO` and was asked `HAVEKEY` instead.
    KeyinfoFallback(KeyinfoFallback),
}

impl Phase {
    /// The client's turn to send a command.
    pub(super) const OPEN: Self = Self::Open { keyinfo: None };
}

impl Machine for State {
    type Event = Event;

    shared_ending!();

    fn transitions(self) -> &'static [(Event, Self)] {
        use Event as E;
        use State as S;
        match self {
            S::Disconnected => &[(E::ClientConnectRequested, S::ConnectingToAgent)],
            S::ConnectingToAgent => {
                &[(E::AgentSocketConnected, S::SocketConnected), Self::FAILS, Self::CLOSES]
            }
            S::SocketConnected => {
                &[(E::ClientDataReceived, S::SendingToAgent), Self::FAILS, Self::CLOSES]
            }
            S::Ready => &[
                (E::ClientDataReceived, S::SendingToAgent),
                (E::AgentDataChunk, S::Ready),
                (E::AgentDataReceived, S::Ready),
                Self::FAILS,
                Self::CLOSES,
            ],
            S::SendingToAgent => {
                &[(E::AgentWriteOk, S::WaitingForAgent), Self::FAILS, Self::CLOSES]
            }
            S::WaitingForAgent => &[
                (E::AgentDataChunk, S::WaitingForAgent),
                (E::AgentDataReceived, S::Ready),
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
