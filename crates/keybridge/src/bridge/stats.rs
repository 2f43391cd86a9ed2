//! What the lanes of a bridge have carried.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What one lane has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LaneStats {
    /// Connected clients.
    pub open: usize,
    /// All clients so far.
    pub total: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
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

/// At most one failed session a minute is logged: a target can make its sessions fail on purpose.
const PAUSE_BETWEEN_WARNINGS: Duration = Duration::from_mins(1);

/// The counters of one lane, which its sessions share.
#[derive(Debug, Default)]
pub(super) struct LaneCounter {
    stats: Cell<LaneStats>,
    warned: Cell<Option<Instant>>,
}

/// Counts a client as connected until it is dropped.
#[derive(Debug)]
pub(super) struct Connected(Rc<LaneCounter>);

impl LaneCounter {
    pub(super) fn stats(&self) -> LaneStats {
        self.stats.get()
    }

    /// Whether a failed session may be logged now.
    pub(super) fn may_warn(&self, now: Instant) -> bool {
        let due = self.warned.get().is_none_or(|at| now >= at + PAUSE_BETWEEN_WARNINGS);
        if due {
            self.warned.set(Some(now));
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
    fn one_failed_session_a_minute_is_logged() {
        let counter = LaneCounter::default();
        let start = Instant::now();
        let logged =
            (0..25).filter(|tenths| counter.may_warn(start + Duration::from_secs(6) * *tenths));
        assert_eq!(logged.collect::<Vec<_>>(), [0, 10, 20]);
    }
}
