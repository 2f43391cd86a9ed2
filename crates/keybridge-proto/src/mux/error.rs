//! What can go wrong on a link: faults of the peer, which end it, and calls that this end can't do.

use super::{End, FrameType, StreamId};

/// Why a link ended, or why a call was not done.
///
/// What [`Endpoint::receive`](super::Endpoint::receive) returns is a fault of the peer and ends the link. What
/// the other calls return is a fault of the caller, as long as the link lives, and ends nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A frame's length doesn't even count its type and stream id.
    #[error("the peer sent a frame of length {length}; at least 5 was expected")]
    FrameTooShort {
        /// The length that came.
        length: u32,
    },
    /// A frame is longer than any frame may be.
    #[error("the peer sent a frame of length {length}; at most 1048576 was expected")]
    FrameTooLong {
        /// The length that came.
        length: u32,
    },
    /// A control frame's payload is over the bound of its type.
    #[error("the peer sent {frame} with {came} bytes; at most {limit} were expected")]
    PayloadTooLong {
        /// The type of the frame.
        frame: FrameType,
        /// The bound of its type.
        limit: usize,
        /// The size that came.
        came: usize,
    },
    /// A frame of fixed size has another one.
    #[error("the peer sent {frame} with {came} bytes; {expected} were expected")]
    PayloadSize {
        /// The type of the frame.
        frame: FrameType,
        /// The only size it can have.
        expected: usize,
        /// The size that came.
        came: usize,
    },
    /// The first frame was no HELLO.
    #[error("the peer began with a frame of type {came}; HELLO (7) was expected")]
    ExpectedHello {
        /// The type that came.
        came: u8,
    },
    /// A second HELLO came.
    #[error("the peer sent HELLO twice; one was expected")]
    HelloTwice,
    /// A HELLO that is not words of printable ASCII with single spaces.
    #[error(
        "the peer sent a HELLO that can't be read; \"2 PROGRAM-VERSION FEATURE...\" was expected"
    )]
    HelloMalformed,
    /// The peer speaks another version.
    #[error("the peer speaks version {theirs} of the link; {ours} was expected")]
    VersionMismatch {
        /// The version of this end.
        ours: u32,
        /// The version that came.
        theirs: u32,
    },
    /// A version 1 host didn't begin with PUBKEY.
    #[error("the peer began with a frame of type {came}; PUBKEY (4) was expected")]
    ExpectedKeys {
        /// The type that came.
        came: u8,
    },
    /// A version 1 host sent something unknown before READY was said.
    #[error("the peer sent a frame of unknown type {came} before READY; none was expected")]
    UnknownType {
        /// The type that came.
        came: u8,
    },
    /// The peer takes a second path that there isn't.
    #[error("the peer sent SWITCH, and there is no other path")]
    UnexpectedSwitch,
    /// The peer's end may not send this type.
    #[error("the peer sent {frame}, which is for the other end to send")]
    WrongEnd {
        /// The type that came.
        frame: FrameType,
    },
    /// The type doesn't go with the stream id: DATA for stream 0, or PUBKEY for another one.
    #[error("the peer sent {frame} for stream {id}, where it has no meaning")]
    WrongStream {
        /// The type that came.
        frame: FrameType,
        /// The stream id that came.
        id: u32,
    },
    /// A frame for a stream that was never opened.
    #[error("the peer sent {frame} for stream {id}; the highest ever opened is {highest}")]
    NeverOpened {
        /// The type that came.
        frame: FrameType,
        /// The stream id that came.
        id: u32,
        /// The highest id that was ever opened.
        highest: u32,
    },
    /// OPEN with an id that can't be the next one.
    #[error("the peer opened stream {came}; {expected} was expected")]
    OpenOutOfOrder {
        /// The next id.
        expected: u32,
        /// The id that came.
        came: u32,
    },
    /// The peer opens refused streams faster than it takes the refusals.
    #[error(
        "the peer has {limit} refused streams that it hasn't read about; no more were expected"
    )]
    TooManyRefusals {
        /// How many refusals can be pending.
        limit: usize,
    },
    /// More bytes on one stream than it had credit for.
    #[error("the peer sent {came} bytes on stream {id}; it had credit for {room}")]
    StreamCreditExceeded {
        /// The stream.
        id: u32,
        /// What was left of its window.
        room: usize,
        /// The size that came.
        came: usize,
    },
    /// More bytes on all streams together than the link may hold.
    #[error("the peer sent {came} bytes on stream {id}; the link had room for {room}")]
    LinkCreditExceeded {
        /// The stream.
        id: u32,
        /// What was left of the link's bound.
        room: usize,
        /// The size that came.
        came: usize,
    },
    /// WINDOW gave back more than was in flight.
    #[error("the peer gave credit for {came} bytes on stream {id}; {in_flight} were in flight")]
    CreditOverflow {
        /// The stream.
        id: u32,
        /// What was in flight.
        in_flight: usize,
        /// The credit that came.
        came: usize,
    },
    /// DATA or EOF after EOF.
    #[error("the peer sent {frame} on stream {id} after its EOF; nothing was expected")]
    AfterEof {
        /// The type that came.
        frame: FrameType,
        /// The stream.
        id: u32,
    },
    /// A series of keys before the one before it was dealt with.
    #[error("the peer sent new keys while the ones before are still worked on")]
    KeysTooSoon,
    /// No start line in what may come before it.
    #[error("no start line came in the first {limit} bytes")]
    StartLineMissing {
        /// How much may come before it.
        limit: usize,
    },
    /// A cookie that is not 32 hexadecimal digits.
    #[error(
        "a cookie is 32 hexadecimal digits; {came} characters came, or another sign is among them"
    )]
    BadCookie {
        /// The length that came.
        came: usize,
    },

    /// As many streams as there may be are open.
    #[error("{limit} streams are open, and no more are allowed")]
    TooManyStreams {
        /// The configured number.
        limit: usize,
    },
    /// Every stream id has been used.
    #[error("every stream id of this link has been used")]
    StreamIdsExhausted,
    /// A call that is for the other end.
    #[error("{call} is not for the {end} end of a link")]
    NotAtThisEnd {
        /// The name of the call.
        call: &'static str,
        /// This end.
        end: End,
    },
    /// Bytes for a direction that was finished.
    #[error("stream {id} was finished, nothing can be written to it")]
    WriteAfterFinish {
        /// The stream.
        id: StreamId,
    },
    /// An export that doesn't fit in the one frame of version 1.
    #[error("the keys are over {limit} bytes, which is all that version 1 can carry")]
    KeysTooLong {
        /// How much fits.
        limit: usize,
    },
    /// Keys while the end of the series before is not yet sent, or after the only one of version 1.
    #[error("the series of keys is ended already")]
    KeysEnded,
    /// A READY that the peer would not take.
    #[error("READY has {came} bytes; at most {limit} are allowed")]
    ReadyTooLong {
        /// The bound.
        limit: usize,
        /// The size that was given.
        came: usize,
    },
    /// Words that can't stand in a HELLO.
    #[error(
        "a program version or feature is not a word of printable ASCII, or HELLO gets too long"
    )]
    BadHelloWords,
}
