//! Bytes that must not reach a log.

use std::fmt;

/// Bytes that are never printed: a nonce, `D` data, a passphrase. There is no `Display`, and `Debug`
/// shows only the size.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<B>(B);

impl<B: AsRef<[u8]>> Secret<B> {
    /// Marks bytes as secret.
    pub const fn new(bytes: B) -> Self {
        Self(bytes)
    }

    /// The bytes, for the one place that has to send them.
    pub fn expose(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl Secret<Vec<u8>> {
    /// Adds bytes that came later.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Secret<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.as_ref().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_size_and_not_the_bytes() {
        let nonce = Secret::new(*b"0123456789abcdef");
        assert_eq!(format!("{nonce:?}"), "Secret(16 bytes)");
        assert_eq!(nonce.expose(), b"0123456789abcdef");
    }
}
