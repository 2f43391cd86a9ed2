//! The numbers that tell frames apart.

use std::fmt;

/// The first byte of a frame: which request or answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageType(pub u8);

macro_rules! message_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl MessageType {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// Every kind of RFC 9987.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in RFC 9987, without its prefix, of a kind that has one.
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
    /// The agent says no.
    FAILURE = 5;
    /// The agent has done it.
    SUCCESS = 6;
    /// Which keys are there?
    REQUEST_IDENTITIES = 11;
    /// The keys.
    IDENTITIES_ANSWER = 12;
    /// Sign this.
    SIGN_REQUEST = 13;
    /// The signature.
    SIGN_RESPONSE = 14;
    /// Take this private key.
    ADD_IDENTITY = 17;
    /// Forget this key.
    REMOVE_IDENTITY = 18;
    /// Forget every key.
    REMOVE_ALL_IDENTITIES = 19;
    /// Take the keys of a token, by a library that the request names.
    ADD_SMARTCARD_KEY = 20;
    /// Forget the keys of a token.
    REMOVE_SMARTCARD_KEY = 21;
    /// Refuse everything from now on.
    LOCK = 22;
    /// No longer refuse everything.
    UNLOCK = 23;
    /// As `ADD_IDENTITY`, with limits on the key's use.
    ADD_ID_CONSTRAINED = 25;
    /// As `ADD_SMARTCARD_KEY`, with limits on the keys' use.
    ADD_SMARTCARD_KEY_CONSTRAINED = 26;
    /// Something that only its name tells.
    EXTENSION = 27;
    /// An extension failed.
    EXTENSION_FAILURE = 28;
    /// What an extension answers.
    EXTENSION_RESPONSE = 29;
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown type {}", self.0),
        }
    }
}
