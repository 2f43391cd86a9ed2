//! One stream: its life, its two queues and its credit.
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
//!                        (the stream is forgotten)
//! ```
//!
//! Both directions finished is no end: the stream lives until one side closes it. Stream 0, which carries
//! keys, is always Live; a series of keys finishes a direction, and it is opened again for the next one.

use super::flow::{Flow, PendingCredit};
use super::queue::ByteQueue;
use crate::Lane;

/// What a link keeps for a stream, from OPEN until it is forgotten.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) state: State,
    /// What came and isn't consumed.
    pub(super) inbound: ByteQueue,
    /// What is written and isn't sent.
    pub(super) outbound: ByteQueue,
    pub(super) sent: Flow,
    pub(super) received: Flow,
    pub(super) credit: PendingCredit,
    /// The lane that an OPEN which isn't sent yet will name.
    pub(super) open_due: Option<Lane>,
    pub(super) credit_due: bool,
}

impl Stream {
    /// A stream of the helper, before its OPEN is sent.
    pub(super) fn opening(lane: Lane) -> Self {
        Self { open_due: Some(lane), ..Self::default() }
    }

    /// If every queued byte is sent and the end of our direction has to be said.
    pub(super) fn end_is_due(&self) -> bool {
        self.outbound.is_empty() && self.state.is_finishing()
    }
}

/// Where a stream is in its life. Its methods are the only transitions.
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
    /// Our direction ends after what is queued; false if it did already.
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

    /// The end of our direction has been said.
    pub(super) fn end_sent(&mut self) {
        match &mut self.0 {
            Life::Live { ours, .. } => *ours = Ours::Finished,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "an end of a closed stream"),
        }
    }

    /// The end of a series of keys has been said, and another one can begin.
    pub(super) fn series_sent(&mut self) {
        match &mut self.0 {
            Life::Live { ours, .. } => *ours = Ours::Open,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "stream 0 is never closed"),
        }
    }

    /// The peer's direction is at its end.
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

    /// A series of keys has been dealt with, and another one can come.
    pub(super) fn series_done(&mut self) {
        match &mut self.0 {
            Life::Live { theirs, .. } => *theirs = Theirs::Open,
            Life::PeerClosed | Life::Closing => debug_assert!(false, "stream 0 is never closed"),
        }
    }

    /// A version 1 host has closed the stream, and what it sent before can still be read.
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

    /// The stream ends at once; true if the peer has to be told.
    pub(super) fn close(&mut self) -> bool {
        match &self.0 {
            Life::Live { .. } => {
                self.0 = Life::Closing;
                true
            }
            Life::PeerClosed | Life::Closing => false,
        }
    }

    /// If frames of the peer mean something; else they are dropped.
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

    /// If the caller may write.
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

    /// If nothing more can come from the peer.
    pub(super) fn peer_is_finished(&self) -> bool {
        match &self.0 {
            Life::Live { theirs: Theirs::Finished, .. } | Life::PeerClosed => true,
            Life::Live { theirs: Theirs::Open, .. } | Life::Closing => false,
        }
    }
}
