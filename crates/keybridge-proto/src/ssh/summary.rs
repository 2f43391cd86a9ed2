//! The form of a frame that may stand in a log.

use std::fmt;

use super::MessageType;

/// Shows which request or answer a frame is, and its size; nothing of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    kind: MessageType,
    size: usize,
}

impl Summary {
    /// Sums up a frame that has so many bytes after its type.
    pub const fn new(kind: MessageType, size: usize) -> Self {
        Self { kind, size }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.kind, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_kind_and_size_only() {
        assert_eq!(Summary::new(MessageType::LOCK, 11).to_string(), "LOCK (11 bytes)");
        assert_eq!(Summary::new(MessageType(99), 0).to_string(), "unknown type 99 (0 bytes)");
    }
}
