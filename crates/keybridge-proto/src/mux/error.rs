//! What can go wrong on a link: faults of the peer, which end it, and calls that can't be made at
//! this end.

use super::{End, FrameType, StreamId};

/// Why a link ended, or why a call failed.
///
/// What [`Endpoint::receive`](super::Endpoint::receive) returns is a fault of the peer and ends the
/// link. What the other calls return is a fault of the caller and ends nothing, unless the link has
/// ended before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A frame's length doesn't cover its type and stream id.
    #[error("expected a frame of length 5 or more, got {length}")]
    FrameTooShort {
        /// The length that came.
        length: u32,
    },
    /// A frame is longer than any frame may be.
    #[error("expected a frame of length 1048576 or less, got {length}")]
    FrameTooLong {
        /// The length that came.
        length: u32,
    },
    /// A control frame's payload is over the bound of its type.
    #[error("expected {frame} with {limit} bytes or less, got {came}")]
    PayloadTooLong {
        /// The type of the frame.
        frame: FrameType,
        /// The bound of its type.
        limit: usize,
        /// The size that came.
        came: usize,
    },
    /// A payload of fixed size has another size.
    #[error("expected {frame} with {expected} bytes, got {came}")]
    PayloadSize {
        /// The type of the frame.
        frame: FrameType,
        /// The only size it can have.
        expected: usize,
        /// The size that came.
        came: usize,
    },
    /// The first frame wasn't HELLO.
    #[error("expected HELLO (7) as the first frame, got type {came}")]
    ExpectedHello {
        /// The type that came.
        came: u8,
    },
    /// A second HELLO came.
    #[error("expected one HELLO, got another one")]
    HelloTwice,
    /// A HELLO that is not words of printable ASCII with single spaces.
    #[error("expected HELLO with \"2 PROGRAM-VERSION FEATURE...\", got something else")]
    HelloMalformed,
    /// The peer speaks another version.
    #[error("expected version {ours} of the link's protocol, got version {theirs}")]
    VersionMismatch {
        /// The version of this end.
        ours: u32,
        /// The version that came.
        theirs: u32,
    },
    /// A version 1 host didn't begin with PUBKEY.
    #[error("expected PUBKEY (4) as the first frame, got type {came}")]
    ExpectedKeys {
        /// The type that came.
        came: u8,
    },
    /// A version 1 host sent something unknown before READY was sent.
    #[error("expected a known frame before READY, got type {came}")]
    UnknownType {
        /// The type that came.
        came: u8,
    },
    /// The peer's end may not send this type.
    #[error("got {frame}, which only this end may send")]
    WrongEnd {
        /// The type that came.
        frame: FrameType,
    },
    /// A type that can't have this stream id: DATA for stream 0, or PUBKEY for another one.
    #[error("got {frame} for stream {id}, where it isn't valid")]
    WrongStream {
        /// The type that came.
        frame: FrameType,
        /// The stream id that came.
        id: u32,
    },
    /// A frame for a stream that was never opened.
    #[error("expected {frame} for an opened stream ({highest} or below), got stream {id}")]
    NeverOpened {
        /// The type that came.
        frame: FrameType,
        /// The stream id that came.
        id: u32,
        /// The highest id that was ever opened.
        highest: u32,
    },
    /// OPEN with an id that isn't the next one.
    #[error("expected OPEN for stream {expected}, got stream {came}")]
    OpenOutOfOrder {
        /// The next id.
        expected: u32,
        /// The id that came.
        came: u32,
    },
    /// The peer opens refused streams faster than it reads the refusals.
    #[error("expected no more OPEN while {limit} refusals are unread, got another one")]
    TooManyRefusals {
        /// How many refusals can be pending.
        limit: usize,
    },
    /// The helper sends more frames that no credit bounds than one that works ever would.
    #[error("expected fewer frames without data, got a flood of them")]
    TooManyFrames,
    /// More bytes on one stream than it had credit for.
    #[error("expected {room} bytes or less on stream {id}, which is its credit, got {came}")]
    StreamCreditExceeded {
        /// The stream.
        id: u32,
        /// What was left of its window.
        room: usize,
        /// The size that came.
        came: usize,
    },
    /// More bytes on all streams together than the link may hold.
    #[error(
        "expected {room} bytes or less on the link, which is its credit, got {came} on stream {id}"
    )]
    LinkCreditExceeded {
        /// The stream.
        id: u32,
        /// What was left of the link's bound.
        room: usize,
        /// The size that came.
        came: usize,
    },
    /// WINDOW gave back more than was in flight.
    #[error("expected credit for {in_flight} bytes or less on stream {id}, got {came}")]
    CreditOverflow {
        /// The stream.
        id: u32,
        /// What was in flight.
        in_flight: usize,
        /// The credit that came.
        came: usize,
    },
    /// DATA or EOF after EOF.
    #[error("expected nothing on stream {id} after EOF, got {frame}")]
    AfterEof {
        /// The type that came.
        frame: FrameType,
        /// The stream.
        id: u32,
    },
    /// A series of keys before the last one was imported.
    #[error("expected new keys only after the last ones are imported, got them before")]
    KeysTooSoon,
    /// Too much came before the start line.
    #[error("expected the start line within {limit} bytes, got none")]
    StartLineMissing {
        /// How much may come before it.
        limit: usize,
    },
    /// A cookie that isn't 32 hexadecimal digits.
    #[error("expected a cookie of 32 hexadecimal digits, got {came} characters that aren't that")]
    BadCookie {
        /// The length that came.
        came: usize,
    },

    /// No more streams can be opened.
    #[error("can't open a stream: {limit} are open, which is the limit")]
    TooManyStreams {
        /// The configured number.
        limit: usize,
    },
    /// Every stream id has been used.
    #[error("can't open a stream: every id of this link has been used")]
    StreamIdsExhausted,
    /// A call that is for the other end.
    #[error("{call} can't be called at the {end} end of a link")]
    NotAtThisEnd {
        /// The name of the call.
        call: &'static str,
        /// This end.
        end: End,
    },
    /// Bytes for a direction that was finished.
    #[error("can't write to stream {id}: it was finished")]
    WriteAfterFinish {
        /// The stream.
        id: StreamId,
    },
    /// An export that doesn't fit in the one frame of version 1.
    #[error("can't send the keys: version 1 carries {limit} bytes at most")]
    KeysTooLong {
        /// How much fits.
        limit: usize,
    },
    /// Keys before the end of the last series is sent, or after the only series of version 1.
    #[error("can't send more keys: the series has ended")]
    KeysEnded,
    /// A READY that the peer wouldn't accept.
    #[error("can't send READY: it has {came} bytes, and {limit} are the limit")]
    ReadyTooLong {
        /// The bound.
        limit: usize,
        /// The size that was given.
        came: usize,
    },
}
