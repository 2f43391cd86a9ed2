//! The types of messages (RFC 9987).

use std::fmt;

/// The first byte of a frame: which request or response it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageType(pub u8);

macro_rules! message_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl MessageType {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// Every type of RFC 9987.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in RFC 9987, without its prefix.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

message_types! {
    /// The agent refused.
    FAILURE = 5;
    /// The agent succeeded.
    SUCCESS = 6;
    /// List the keys.
    REQUEST_IDENTITIES = 11;
    /// The keys.
    IDENTITIES_ANSWER = 12;
    /// Sign this.
    SIGN_REQUEST = 13;
    /// The signature.
    SIGN_RESPONSE = 14;
    /// Add a private key.
    ADD_IDENTITY = 17;
    /// Remove a key.
    REMOVE_IDENTITY = 18;
    /// Remove every key.
    REMOVE_ALL_IDENTITIES = 19;
    /// Add the keys of a token, through a library that the request names.
    ADD_SMARTCARD_KEY = 20;
    /// Remove the keys of a token.
    REMOVE_SMARTCARD_KEY = 21;
    /// Refuse everything until it is unlocked.
    LOCK = 22;
    /// Unlock the agent.
    UNLOCK = 23;
    /// As `ADD_IDENTITY`, with limits on the key's use.
    ADD_ID_CONSTRAINED = 25;
    /// As `ADD_SMARTCARD_KEY`, with limits on the keys' use.
    ADD_SMARTCARD_KEY_CONSTRAINED = 26;
    /// An extension, by its name.
    EXTENSION = 27;
    /// An extension failed.
    EXTENSION_FAILURE = 28;
    /// The answer of an extension.
    EXTENSION_RESPONSE = 29;
}

impl MessageType {
    /// Whether an agent sends it.
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::FAILURE
                | Self::SUCCESS
                | Self::IDENTITIES_ANSWER
                | Self::SIGN_RESPONSE
                | Self::EXTENSION_FAILURE
                | Self::EXTENSION_RESPONSE
        )
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown type {}", self.0),
        }
    }
}

/// What a log may show of a frame: its type and its size.
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
