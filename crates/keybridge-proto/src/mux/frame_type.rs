//! The types of frames, with all that a frame's header is judged by.

use std::fmt;

use super::Version;

/// Who may send a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Host,
    Helper,
    Both,
}

/// Which stream id a frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// 0: the frame is about the link.
    Link,
    /// 0: the frame carries keys.
    Keys,
    /// That of a stream which was opened.
    Stream,
    /// That of a stream which was opened, or 0 for the keys.
    StreamOrKeys,
    /// The next one that wasn't used.
    NewStream,
}

/// How long a payload may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// Bounded by the credit of its stream, and in version 1 by the longest frame.
    Bytes,
    /// A longer one is an error.
    AtMost(usize),
    /// Of a longer one only the beginning is kept.
    CutTo(usize),
    /// Any other size is an error.
    Exactly(usize),
    /// There is none. In version 1 it isn't looked at.
    Empty,
}

/// What is known of a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The first version that has it.
    pub(super) since: Version,
    pub(super) sender: Sender,
    pub(super) scope: Scope,
    pub(super) payload: Payload,
}

macro_rules! frame_types {
    ($($(#[doc = $doc:literal])+ $name:ident = $byte:literal, $word:literal, $since:ident, $sender:ident, $scope:ident, $payload:expr;)+) => {
        /// What a frame is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FrameType {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FrameType {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),+];

            /// The type that a byte stands for, in version 2.
            pub(super) const fn from_wire(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The byte that stands for the type.
            pub const fn wire(self) -> u8 {
                match self {
                    $(Self::$name => $byte,)+
                }
            }

            pub(super) const fn rules(self) -> Rules {
                use Payload::{AtMost, Bytes, CutTo, Empty, Exactly};
                match self {
                    $(Self::$name => Rules {
                        since: Version::$since,
                        sender: Sender::$sender,
                        scope: Scope::$scope,
                        payload: $payload,
                    },)+
                }
            }
        }

        impl fmt::Display for FrameType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $word,)+
                })
            }
        }
    };
}

/// A report of what the helper has set up.
pub(crate) const READY_LIMIT: usize = 16 * 1024;
/// A text for a person, from a target that may be hostile.
pub(crate) const ERROR_LIMIT: usize = 4 * 1024;
/// A version, a program version and a few words.
const HELLO_LIMIT: usize = 1024;
/// The name of a lane; the longest has 9 bytes.
const OPEN_LIMIT: usize = 64;
/// A u32 of credit.
const WINDOW_SIZE: usize = 4;
/// An opaque u64.
const PING_SIZE: usize = 8;

// Name, number, word, first version, sender, stream, payload. Of the frames of the link, those that
// wait are sent in this order.
frame_types! {
    /// The first frame of version 2, both ways.
    Hello = 7, "HELLO", Two, Both, Link, AtMost(HELLO_LIMIT);
    /// The answer to a PING.
    Pong = 11, "PONG", Two, Both, Link, Exactly(PING_SIZE);
    /// Asks whether the peer is alive.
    Ping = 10, "PING", Two, Both, Link, Exactly(PING_SIZE);
    /// The bridge ends: the helper is to undo what it did.
    Stop = 12, "STOP", Two, Host, Link, Empty;
    /// What the helper has set up.
    Ready = 5, "READY", One, Helper, Link, AtMost(READY_LIMIT);
    /// Why the helper can't go on.
    Error = 6, "ERROR", One, Helper, Link, CutTo(ERROR_LIMIT);
    /// Opens a stream; the payload names a lane.
    Open = 2, "OPEN", One, Helper, NewStream, AtMost(OPEN_LIMIT);
    /// Ends a stream, both ways.
    Close = 3, "CLOSE", One, Both, Stream, Empty;
    /// Credit for a stream.
    Window = 8, "WINDOW", Two, Both, StreamOrKeys, Exactly(WINDOW_SIZE);
    /// Ends one direction of a stream.
    Eof = 9, "EOF", Two, Both, Stream, Empty;
    /// Bytes of a stream.
    Data = 1, "DATA", One, Both, Stream, Bytes;
    /// Public keys.
    Pubkey = 4, "PUBKEY", One, Host, Keys, Bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_and_its_byte_stand_for_each_other() {
        assert_eq!(FrameType::ALL.len(), 12);
        for byte in 0..=u8::MAX {
            let kind = FrameType::from_wire(byte);
            assert_eq!(kind.map(FrameType::wire), (1..=12).contains(&byte).then_some(byte));
        }
    }

    #[test]
    fn version_1_has_the_first_six_types() {
        for kind in FrameType::ALL {
            assert_eq!(kind.rules().since == Version::One, kind.wire() <= 6, "{kind}");
        }
    }
}
