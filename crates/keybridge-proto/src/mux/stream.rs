//! One stream: its state, its two queues and its credit.
//!
//! ```text
//!                        OPEN sent or received
//!                                  │
//!                                  ▼
//!                ┌────────────── Live ──────────────┐
//!                │  ours:   Open ─▶ Finishing ─▶ Finished
//!                │          finish()      EOF sent  │
//!                │  theirs: Open ────────▶ Finished │
//!                │               EOF received       │
//!                └──┬───────────────┬────────────┬──┘
//!           close() │               │            │ CLOSE received by a
//!        or a bound │               │            │ version 1 helper
//!                   ▼               │            ▼
//!                Closing            │       PeerClosed (what is held can be read)
//!                   │               │            │
//!         CLOSE sent│ CLOSE received│            │ close()
//!                   ▼               ▼            ▼
//!                        (the stream is removed)
//! ```
//!
//! A stream with both directions finished is still Live until one side closes it. Stream 0, which carries
//! keys, is always Live: a series of keys finishes a direction, and the next series opens it again.

use super::flow::{Flow, PendingCredit};
use super::pace::DataPace;
use super::queue::ByteQueue;
use crate::Lane;

/// A stream, from its OPEN until it is removed.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) state: State,
    /// Received and not consumed.
    pub(super) inbound: ByteQueue,
    /// Written and not sent.
    pub(super) outbound: ByteQueue,
    pub(super) sent: Flow,
    pub(super) received: Flow,
    pub(super) credit: PendingCredit,
    pub(super) data_pace: DataPace,
    /// The lane for the OPEN, until that is sent.
    pub(super) open_due: Option<Lane>,
    pub(super) credit_due: bool,
}

impl Stream {
    /// A stream of the helper, before its OPEN is sent.
    pub(super) fn opening(lane: Lane) -> Self {
        Self { open_due: Some(lane), ..Self::default() }
    }

    /// Whether every queued byte was sent, and EOF is next.
    pub(super) fn end_is_due(&self) -> bool {
        self.outbound.is_empty() && self.state.is_finishing()
    }
}

/// The state of a stream. Its methods are the only transitions.
#[derive(Debug)]
pub(super) struct State(Life);

#[derive(Debug)]
enum Life {
    Live { ours: Ours, theirs: Theirs },
    PeerClosed,
    Closing,
}

#[derive(Debug, Clone, Copy)]
enum Ours {
    Open,
    Finishing,
    Finished,
}

#[derive(Debug, Clone, Copy)]
enum Theirs {
    Open,
    Finished,
}

/// A frame that a stream can't have after its EOF.
#[derive(Debug)]
pub(super) struct AlreadyFinished;

impl Default for State {
    fn default() -> Self {
        Self(Life::Live { ours: Ours::Open, theirs: Theirs::Open })
    }
}

impl State {
    /// Our direction ends after what is queued. Returns false if it has ended before.
    pub(super) fn finish(&mut self) -> bool {
        match &mut self.0 {
            Life::Live { ours: ours @ Ours::Open, .. } => {
                *ours = Ours::Finishing;
                true
            }
            Life::Live { ours: Ours::Finishing | Ours::Finished, .. }
            | Life::PeerClosed
            | Life::Closing => false,
        }
    }

    /// EOF was sent.
    pub(super) fn end_sent(&mut self) {
        match &mut self.0 {
            Life::Live { ours, .. } => *ours = Ours::Finished,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "an end of a closed stream"),
        }
    }

    /// The end of a series of keys was sent, and another one can begin.
    pub(super) fn series_sent(&mut self) {
        match &mut self.0 {
            Life::Live { ours, .. } => *ours = Ours::Open,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "stream 0 is never closed"),
        }
    }

    /// EOF was received.
    pub(super) fn end_received(&mut self) -> Result<(), AlreadyFinished> {
        match &mut self.0 {
            Life::Live { theirs: theirs @ Theirs::Open, .. } => {
                *theirs = Theirs::Finished;
                Ok(())
            }
            Life::Live { theirs: Theirs::Finished, .. } => Err(AlreadyFinished),
            Life::PeerClosed | Life::Closing => Ok(()),
        }
    }

    /// A series of keys was imported, and another one can come.
    pub(super) fn series_done(&mut self) {
        match &mut self.0 {
            Life::Live { theirs, .. } => *theirs = Theirs::Open,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "stream 0 is never closed"),
        }
    }

    /// A version 1 host has closed the stream; what it sent before can still be read.
    pub(super) fn peer_closed(&mut self) {
        match &self.0 {
            Life::Live { .. } => self.0 = Life::PeerClosed,
            Life::PeerClosed | Life::Closing => {}
        }
    }

    pub(super) fn is_closed_by_peer(&self) -> bool {
        match &self.0 {
            Life::PeerClosed => true,
            Life::Live { .. } | Life::Closing => false,
        }
    }

    /// The stream ends at once. Returns whether CLOSE has to be sent.
    pub(super) fn close(&mut self) -> bool {
        match &self.0 {
            Life::Live { .. } => {
                self.0 = Life::Closing;
                true
            }
            Life::PeerClosed | Life::Closing => false,
        }
    }

    /// Whether the stream is open; if not, frames of the peer are dropped.
    pub(super) fn is_live(&self) -> bool {
        match &self.0 {
            Life::Live { .. } => true,
            Life::PeerClosed | Life::Closing => false,
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        match &self.0 {
            Life::Closing => true,
            Life::Live { .. } | Life::PeerClosed => false,
        }
    }

    /// Whether the owner may write.
    pub(super) fn is_writable(&self) -> bool {
        match &self.0 {
            Life::Live { ours: Ours::Open, .. } => true,
            Life::Live { ours: Ours::Finishing | Ours::Finished, .. }
            | Life::PeerClosed
            | Life::Closing => false,
        }
    }

    pub(super) fn is_finishing(&self) -> bool {
        match &self.0 {
            Life::Live { ours: Ours::Finishing, .. } => true,
            Life::Live { ours: Ours::Open | Ours::Finished, .. }
            | Life::PeerClosed
            | Life::Closing => false,
        }
    }

    /// Whether nothing more can come from the peer.
    pub(super) fn peer_is_finished(&self) -> bool {
        match &self.0 {
            Life::Live { theirs: Theirs::Finished, .. } | Life::PeerClosed => true,
            Life::Live { theirs: Theirs::Open, .. } | Life::Closing => false,
        }
    }
}
