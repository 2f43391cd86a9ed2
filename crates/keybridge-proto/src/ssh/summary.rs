//! What a log may show of a frame.

use std::fmt;

use super::MessageType;

/// Shows the type and the size of a frame, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    kind: MessageType,
    size: usize,
}

impl Summary {
    /// Summarizes a frame with so many bytes after its type.
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
