//! Bytes that wait to be sent to one side.

use std::fmt;

use crate::assuan::escape_into;

/// A session stops taking input while this much waits to be sent: some lines, so that a run of
/// small ones goes out in one write, and little enough for hundreds of sessions.
const HIGH_WATER: usize = 32 * 1024;

/// Bytes that wait to be sent. Keeps its capacity when it is empty, so that a steady flow of lines
/// allocates nothing.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

// The bytes may be secret.
impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({} bytes)", self.pending().len())
    }
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds data of a `D` line.
    pub(crate) fn push_escaped(&mut self, data: &[u8]) {
        escape_into(&mut self.bytes, data);
    }

    pub(crate) fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Drops bytes that were sent.
    pub(crate) fn took(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether more may be added. Sent bytes count until all are sent, so that it can't grow without
    /// bound.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() < HIGH_WATER
    }
}
