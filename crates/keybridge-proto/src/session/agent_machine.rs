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
//!  SendingToAgent ◀── ClientDataReceived ── Ready ◀─┐ AgentDataChunk     │
//!       │ AgentWriteOk                       ▲ └────┘                    │
//!       ▼                                    │                           │
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
//!  Open ── operation ──▶ Turn ── the turn has come, or it is refused ──────────────────▶ Open
//!                         ▲ └──── nothing describes the key (6) ──▶ Describing ── ERR ──▶ Open
//!                         └───────────────────────── OK ────────────────┘
//!       ─┬─ OK, ERR ────────────────────────────────────────────────────────────────────▶ Open
//!        ├─ ERR Forbidden for KEYINFO (3) ──▶ KeyinfoFallback ── OK, ERR ───────────────▶ Open
//!        └─ INQUIRE ──▶ Inquiry ─┬─ OK, ERR: the agent didn't wait for the end ─────▶ (Error)
//!                         ▲      ├─ denied line (4) ──▶ DeniedInquiry ── OK, ERR (5) ─┐
//!                         │      │                        └──┘ INQUIRE (4)            ▼
//!                         │      └─ END, CAN ─────────▶ EndedInquiry ── OK, ERR (5) ─▶ InStep
//!                         └──────── INQUIRE ───────────────┘                           │
//!                                                                    Open ◀──── OK ────┤
//!                                                                 (Error) ◀─ OK, ERR ──┘
//! ```
//!
//! A phase takes as many turns as it needs, each of them sending, waiting and ready. In all phases but
//! Open, Inquiry and `EndedInquiry` the session itself is the client: it fires `ClientDataReceived` for bytes of its
//! own, while the client's bytes wait:
//!
//! 1. the nonce of a TCP socket; a Unix socket needs none, and nothing is sent;
//! 2. `GETINFO restricted`, with which the socket proves that it is the restricted one;
//! 3. `HAVEKEY`, after an agent before 2.3 has forbidden `KEYINFO`;
//! 4. `CAN`, after the gate has denied a line of an inquiry;
//! 5. `NOP`, after a command with an inquiry. An agent that ended the inquiry before it read the end of
//!    the data takes the rest as commands and answers each, and a later answer would then be taken for
//!    that of another command. So the answer to `NOP` has to come next;
//! 6. `SETKEYDESC`, before an operation that the client asks for without one: a dialog without a text
//!    wouldn't say that it comes from a remote site.

use crate::Secret;
use crate::assuan::{LineBuffer, Reply};
use crate::gate::KeyOperation;
use crate::session::SessionError;
use crate::session::core::SessionState;
use crate::session::keyinfo_fallback::KeyinfoFallback;
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
pub(crate) enum Phase {
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
    /// A private-key operation waits until the lent keys are read, and until fewer of them are under way.
    Turn { kind: KeyOperation, in_inquiry: bool },
    /// The operation whose turn has come gets a text for its dialog, as the client gave it none.
    Describing(KeyOperation),
    /// The agent waits for data of the client.
    Inquiry,
    /// The client has ended the inquiry.
    EndedInquiry,
    /// A line of an inquiry was denied, and the inquiry was cancelled. The client gets the denial in
    /// place of the agent's answer.
    DeniedInquiry(Reply),
    /// The command with the inquiry was answered, and the agent was sent `NOP`.
    InStep,
    /// The agent forbade `KEYINFO` and was asked `HAVEKEY` instead.
    KeyinfoFallback(KeyinfoFallback),
}

impl Phase {
    /// The client's turn to send a command.
    pub(crate) const OPEN: Self = Self::Open { keyinfo: None };
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
