//! How fast a peer may act: the rate of new streams, and of frames that no credit bounds.
//!
//! DATA is bounded by its bytes unless it is small, and WINDOW by the bytes that it gives credit for.
//! Small DATA is bounded by what the host says on its stream. Every other frame costs its sender almost
//! nothing, and its receiver some work. A host takes so many of them that no helper which opens streams at
//! [`OPEN_INTERVAL`] ever has too few, also if a link moves on after it had stalled for as long as a link
//! may.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{LinkError, SILENCE_LIMIT};

/// How many streams may be opened in a burst.
pub const OPEN_BURST: u32 = 512;

/// Bounds the rate of connections to the agent to a thousand a second.
pub const OPEN_INTERVAL: Duration = Duration::from_millis(1);

/// What a helper sends for a stream: OPEN, perhaps a PING, EOF and CLOSE.
const FRAMES_PER_STREAM: u32 = 4;

const FRAME_INTERVAL: Duration = OPEN_INTERVAL.checked_div(FRAMES_PER_STREAM).unwrap();

/// How many frames may come at once.
#[expect(clippy::cast_possible_truncation, reason = "22048")]
const FRAME_BURST: u32 = FRAMES_PER_STREAM * OPEN_BURST
    + (SILENCE_LIMIT.as_micros() / FRAME_INTERVAL.as_micros()) as u32;

/// A rate of new streams, with a burst.
#[derive(Debug)]
pub struct OpenPace {
    /// When the next one may begin at the bounded rate; in the past if there is room for a burst.
    next: Cell<Instant>,
}

impl OpenPace {
    /// A pace at which nothing was opened yet.
    pub const fn new(now: Instant) -> Self {
        Self { next: Cell::new(now) }
    }

    /// When a stream that is opened now may begin; `None` for at once.
    pub fn slot(&self, now: Instant) -> Option<Instant> {
        let earliest = now.checked_sub(OPEN_INTERVAL * OPEN_BURST).unwrap_or(now);
        let slot = self.next.get().max(earliest);
        self.next.set(slot + OPEN_INTERVAL);
        Some(slot).filter(|&slot| slot > now)
    }
}

/// How many more frames without credit a peer may send.
#[derive(Debug)]
pub(super) struct FrameBudget {
    left: u32,
    /// Until when frames were earned.
    earned_until: Option<Instant>,
}

impl FrameBudget {
    pub(super) const FULL: Self = Self { left: FRAME_BURST, earned_until: None };

    /// Time has passed.
    pub(super) fn earn(&mut self, now: Instant) {
        let since = *self.earned_until.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        let frames = passed.as_micros() / FRAME_INTERVAL.as_micros();
        let frames = u32::try_from(frames).unwrap_or(FRAME_BURST).min(FRAME_BURST);
        if frames == FRAME_BURST {
            *self = Self { left: FRAME_BURST, earned_until: Some(now) };
        } else {
            self.left = self.left.saturating_add(frames).min(FRAME_BURST);
            self.earned_until = Some(since + FRAME_INTERVAL * frames);
        }
    }

    /// Counts a frame.
    pub(super) fn spend(&mut self) -> Result<(), LinkError> {
        self.left = self.left.checked_sub(1).ok_or(LinkError::TooManyFrames)?;
        Ok(())
    }
}

/// DATA with fewer bytes costs its receiver more for the frame than for the bytes.
const SMALL_DATA: usize = 256;

/// How many small DATA frames of a stream are free for each DATA or WINDOW that was sent on it.
///
/// A client waits for an answer before it sends its next request, however many clients there are and however
/// often they ask. It writes a request in two pieces at most (libassuan a line and its end, OpenSSH a length
/// and a message), and in four within an inquiry (the last data, END and their ends): eight are twice that.
/// WINDOW is for 2048 bytes or more, which are eight frames that aren't small.
const SMALL_DATA_PER_ANSWER: u8 = 8;

/// Which DATA frames of a stream needn't be counted.
#[derive(Debug, Default)]
pub(super) struct DataPace {
    /// How many small ones came since something was sent on the stream.
    small: u8,
}

impl DataPace {
    /// Whether DATA of this size is free.
    pub(super) fn admits(&mut self, came: usize) -> bool {
        if came >= SMALL_DATA {
            return true;
        }
        self.small = self.small.saturating_add(1);
        self.small <= SMALL_DATA_PER_ANSWER
    }

    /// DATA or WINDOW is sent on the stream.
    pub(super) fn reset(&mut self) {
        self.small = 0;
    }
}
