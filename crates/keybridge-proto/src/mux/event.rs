//! The events of a link.

use std::fmt;

use super::Hello;
use crate::Lane;

/// The number of a stream. Only a link creates one, and never the same twice.
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
/// An event can be about a stream that its owner has closed since. Calls for such a stream do
/// nothing, and queries answer as for an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// A stream that had no room to write has some.
    Writable(StreamId),
    /// The peer's EOF came. Bytes before it can still be unread;
    /// [`Endpoint::is_finished`](super::Endpoint::is_finished) says when all were read.
    Finished(StreamId),
    /// The stream was closed by the peer or by a limit, and what it held is dropped. At a version 1
    /// helper the event comes when everything from before the host's CLOSE was read.
    Closed(StreamId),
    /// The end of a series of keys came. Bytes of it can still be unread.
    KeysEnd,
    /// The helper's report. Untrusted.
    Ready(Vec<u8>),
    /// Why the helper can't go on, in 4 KiB at most. Untrusted.
    Error(Vec<u8>),
    /// The answer to a ping.
    Pong(u64),
    /// The host ends the bridge: what was done in the target is to be undone.
    Stop,
}
