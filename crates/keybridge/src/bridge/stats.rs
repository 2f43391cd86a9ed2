//! What a bridge has carried.

use std::cell::Cell;
use std::rc::Rc;

use keybridge_proto::Lane;

/// What a bridge has carried since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Stats {
    /// The gpg lane.
    pub gpg: LaneStats,
    /// The ssh lane.
    pub ssh: LaneStats,
}

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

impl Stats {
    /// The same with no client connected.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self { gpg: LaneStats { open: 0, ..self.gpg }, ssh: LaneStats { open: 0, ..self.ssh } }
    }

    /// What one lane has carried.
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

/// Counts for one lane; the sessions of the lane share it.
#[derive(Debug, Default)]
pub(super) struct LaneCounter(Cell<LaneStats>);

/// Counts one client as connected, for as long as it is held.
#[derive(Debug)]
pub(super) struct Connected(Rc<LaneCounter>);

impl LaneCounter {
    pub(super) fn stats(&self) -> LaneStats {
        self.0.get()
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
        let mut stats = self.0.get();
        change(&mut stats);
        self.0.set(stats);
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
