//! What a link tells its owner.

use std::fmt;

use super::Hello;
use crate::Lane;

/// The number of a stream; only a link makes one, and never the same twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u32);

impl StreamId {
    /// The stream that carries public keys from the host to the helper.
    pub const KEYS: Self = Self(0);

    pub(super) const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The number as it is in a frame.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that happened on a link.
///
/// An event can be about a stream that its owner has closed in the meantime; every call for such a stream
/// does nothing and every query answers as for an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer has said who it is: the first event of version 2.
    Hello(Hello),
    /// The helper has opened a stream.
    Opened {
        /// The stream.
        id: StreamId,
        /// Which agent it leads to.
        lane: Lane,
    },
    /// A stream that had nothing to read has something.
    Readable(StreamId),
    /// A stream to which nothing could be written can be written to.
    Writable(StreamId),
    /// The peer writes no more. It is told when the EOF comes, so bytes before it can still be unread;
    /// [`Endpoint::is_finished`](super::Endpoint::is_finished) says when they are read.
    Finished(StreamId),
    /// The stream is gone, by the peer or by a bound, and with it what it held. At a version 1 helper it
    /// comes when what the host sent before its CLOSE has been read.
    Closed(StreamId),
    /// A series of keys is whole. It is told when its end comes, so bytes of it can still be unread.
    KeysEnd,
    /// What the helper says about its state; bytes from outside.
    Ready(Vec<u8>),
    /// Why the helper can't go on, at most 4 KiB of it; bytes from outside, for
    /// [`printable`](crate::printable).
    Error(Vec<u8>),
    /// The answer to a ping.
    Pong(u64),
    /// The host ends the bridge: what was done in the target is to be undone.
    Stop,
    /// What the peer says about a second path; bytes from outside.
    Direct(Vec<u8>),
    /// The rest of what the peer sends comes by the second path.
    Switched,
}
