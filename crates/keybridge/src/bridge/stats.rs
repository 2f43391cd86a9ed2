//! What the lanes of a bridge have carried.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What one lane has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LaneStats {
    /// Clients that are connected now.
    pub open: usize,
    /// Clients that ever were.
    pub total: u64,
    /// Bytes of clients.
    pub bytes_in: u64,
    /// Bytes for clients.
    pub bytes_out: u64,
}

impl LaneStats {
    /// The same with no client connected.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self { open: 0, ..self }
    }
}

impl std::ops::Add for LaneStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            total: self.total + other.total,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
        }
    }
}

/// A target that breaks its sessions on purpose writes a line a minute into the log at most.
const PAUSE_BETWEEN_COMPLAINTS: Duration = Duration::from_mins(1);

/// Counts for one lane; the sessions of the lane share it.
#[derive(Debug, Default)]
pub(super) struct LaneCounter {
    stats: Cell<LaneStats>,
    complained: Cell<Option<Instant>>,
}

/// Counts one client as connected, for as long as it is held.
#[derive(Debug)]
pub(super) struct Connected(Rc<LaneCounter>);

impl LaneCounter {
    pub(super) fn stats(&self) -> LaneStats {
        self.stats.get()
    }

    /// Whether an error may be told aloud now.
    pub(super) fn may_complain(&self, now: Instant) -> bool {
        let due = self.complained.get().is_none_or(|at| now >= at + PAUSE_BETWEEN_COMPLAINTS);
        if due {
            self.complained.set(Some(now));
        }
        due
    }

    pub(super) fn connect(self: &Rc<Self>) -> Connected {
        self.update(|stats| {
            stats.open += 1;
            stats.total += 1;
        });
        Connected(Rc::clone(self))
    }

    pub(super) fn took_in(&self, count: usize) {
        self.update(|stats| stats.bytes_in += u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(super) fn gave_out(&self, count: usize) {
        self.update(|stats| stats.bytes_out += u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn update(&self, change: impl FnOnce(&mut LaneStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

impl std::ops::Deref for Connected {
    type Target = LaneCounter;

    fn deref(&self) -> &LaneCounter {
        &self.0
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.update(|stats| stats.open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_complaint_a_minute_is_told() {
        let counter = LaneCounter::default();
        let start = Instant::now();
        let told =
            (0..25).filter(|tenths| counter.may_complain(start + Duration::from_secs(6) * *tenths));
        assert_eq!(told.collect::<Vec<_>>(), [0, 10, 20]);
    }
}
