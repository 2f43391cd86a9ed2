//! Counters of a bridge.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::Lane;

/// The counters of a bridge since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Stats {
    /// The gpg lane.
    pub gpg: LaneStats,
    /// The ssh lane.
    pub ssh: LaneStats,
}

/// The counters of one lane.
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

impl Stats {
    /// The same, with no client connected.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self { gpg: LaneStats { open: 0, ..self.gpg }, ssh: LaneStats { open: 0, ..self.ssh } }
    }

    /// The counters of one lane.
    pub const fn lane(&self, lane: Lane) -> LaneStats {
        match lane {
            Lane::Gpg => self.gpg,
            Lane::Ssh => self.ssh,
        }
    }
}

impl std::ops::Add for Stats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { gpg: self.gpg + other.gpg, ssh: self.ssh + other.ssh }
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
