//! Which frames may come, and where their payloads go, by the header alone.

use super::super::FrameType;
use super::super::frame::{
    DIRECT_LIMIT, ERROR_LIMIT, HELLO_LIMIT, Header, OPEN_LIMIT, PING_SIZE, READY_LIMIT, WINDOW_SIZE,
};
use super::super::stream::Stream;
use super::incoming::Sink;
use super::{End, Endpoint, Event, KEYS, LinkError, StreamId, Version};
use crate::Lane;

/// What one stream of version 1 may hold for a reader that stalls: the largest frame always fits.
pub const VERSION_1_STREAM_BOUND: usize = 1024 * 1024;

/// What all streams of a version 1 link together may hold: eight stalled readers.
pub const VERSION_1_LINK_BOUND: usize = 8 * 1024 * 1024;

impl Endpoint {
    /// Decides by the header alone if a frame may come and where its payload goes.
    pub(super) fn admit(&mut self, header: Header) -> Result<Sink, LinkError> {
        let known = FrameType::from_wire(header.kind);
        let kind = match self.version {
            Version::One => known.filter(|kind| kind.is_in_version_1() && self.peer_sends(*kind)),
            Version::Two => known,
        };
        self.begin(header.kind)?;
        let Some(kind) = kind else {
            return self.unknown(header.kind);
        };
        if !self.peer_sends(kind) {
            return Err(LinkError::WrongEnd { frame: kind });
        }
        let Header { stream: id, payload: came, .. } = header;
        let keep = match kind {
            FrameType::Data => return self.admit_data(id, came),
            FrameType::Pubkey => return self.admit_keys(id, came),
            FrameType::Open => {
                self.check_order(id)?;
                at_most(kind, OPEN_LIMIT, came)?
            }
            FrameType::Close | FrameType::Eof => {
                self.live_stream(kind, id)?;
                match self.version {
                    Version::One => 0,
                    Version::Two => exactly(kind, 0, came)?,
                }
            }
            FrameType::Window => {
                if id != KEYS {
                    self.live_stream(kind, id)?;
                }
                exactly(kind, WINDOW_SIZE, came)?
            }
            FrameType::Ready => self.on_link(kind, id, at_most(kind, READY_LIMIT, came)?)?,
            FrameType::Error => self.on_link(kind, id, ERROR_LIMIT)?,
            FrameType::Hello => self.on_link(kind, id, at_most(kind, HELLO_LIMIT, came)?)?,
            FrameType::Ping | FrameType::Pong => {
                self.on_link(kind, id, exactly(kind, PING_SIZE, came)?)?
            }
            FrameType::Direct => self.on_link(kind, id, at_most(kind, DIRECT_LIMIT, came)?)?,
            FrameType::Switch if !self.incoming.may_switch => {
                return Err(LinkError::UnexpectedSwitch);
            }
            FrameType::Stop | FrameType::Switch => {
                self.on_link(kind, id, exactly(kind, 0, came)?)?
            }
        };
        Ok(Sink::Control { kind, stream: id, keep })
    }

    /// Checks that the peer begins as its version does.
    fn begin(&mut self, came: u8) -> Result<(), LinkError> {
        let first = !self.incoming.begun;
        match (self.version, self.end) {
            (Version::Two, End::Host | End::Helper) => {
                match (first, came == FrameType::Hello.wire()) {
                    (true, false) => return Err(LinkError::ExpectedHello { came }),
                    (false, true) => return Err(LinkError::HelloTwice),
                    (true, true) => self.incoming.begun = true,
                    (false, false) => {}
                }
            }
            (Version::One, End::Helper) => {
                if came == FrameType::Pubkey.wire() {
                    self.incoming.begun = true;
                } else if first && !self.said_ready && self.lanes.contains(&Lane::Gpg) {
                    return Err(LinkError::ExpectedKeys { came });
                }
            }
            (Version::One, End::Host) => {}
        }
        Ok(())
    }

    fn unknown(&self, came: u8) -> Result<Sink, LinkError> {
        match (self.version, self.end) {
            (Version::One, End::Helper) if !self.said_ready => Err(LinkError::UnknownType { came }),
            (Version::One | Version::Two, End::Host | End::Helper) => Ok(Sink::Skip),
        }
    }

    fn peer_sends(&self, kind: FrameType) -> bool {
        match kind {
            FrameType::Open | FrameType::Ready | FrameType::Error => self.end == End::Host,
            FrameType::Pubkey | FrameType::Stop => self.end == End::Helper,
            FrameType::Data
            | FrameType::Close
            | FrameType::Hello
            | FrameType::Window
            | FrameType::Eof
            | FrameType::Ping
            | FrameType::Pong
            | FrameType::Direct
            | FrameType::Switch => true,
        }
    }

    fn admit_data(&mut self, id: u32, came: usize) -> Result<Sink, LinkError> {
        let version = self.version;
        let Some(stream) = self.live_stream(FrameType::Data, id)? else {
            return Ok(Sink::Skip);
        };
        match version {
            Version::Two => {
                if stream.state.peer_is_finished() {
                    return Err(LinkError::AfterEof { frame: FrameType::Data, id });
                }
                self.accept(id, came)
            }
            Version::One => {
                if stream.inbound.len() + came > VERSION_1_STREAM_BOUND {
                    self.close_by_bound(id);
                    return Ok(Sink::Skip);
                }
                while self.held + came > VERSION_1_LINK_BOUND {
                    // Whoever holds the most has stalled, which isn't always whoever is sent to now.
                    let heaviest = self
                        .streams
                        .iter()
                        .filter(|(other, _)| **other != KEYS)
                        .max_by_key(|(other, stream)| {
                            stream.inbound.len() + if **other == id { came } else { 0 }
                        })
                        .map_or(id, |(heaviest, _)| *heaviest);
                    self.close_by_bound(heaviest);
                    if heaviest == id {
                        return Ok(Sink::Skip);
                    }
                }
                Ok(Sink::Bytes(id))
            }
        }
    }

    fn admit_keys(&mut self, id: u32, came: usize) -> Result<Sink, LinkError> {
        if id != KEYS {
            return Err(LinkError::WrongStream { frame: FrameType::Pubkey, id });
        }
        if self.streams.get(&KEYS).is_some_and(|keys| keys.state.peer_is_finished()) {
            return Err(LinkError::KeysTooSoon);
        }
        match self.version {
            Version::One => Ok(Sink::LastKeys),
            Version::Two if came == 0 => Ok(Sink::LastKeys),
            Version::Two => self.accept(KEYS, came),
        }
    }

    fn accept(&mut self, id: u32, came: usize) -> Result<Sink, LinkError> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.received.accept(&mut self.received, id, came)?;
        }
        Ok(Sink::Bytes(id))
    }

    fn close_by_bound(&mut self, id: u32) {
        let id = StreamId::new(id);
        self.close(id);
        self.events.push_back(Event::Closed(id));
    }

    fn check_order(&self, came: u32) -> Result<(), LinkError> {
        let expected = self.highest.saturating_add(1);
        let in_order = match self.version {
            Version::One => came > self.highest,
            Version::Two => came == expected && came > self.highest,
        };
        if in_order { Ok(()) } else { Err(LinkError::OpenOutOfOrder { expected, came }) }
    }

    /// The stream that a frame is for; `None` if it is closed and the frame is to be dropped.
    pub(super) fn live_stream(
        &mut self,
        frame: FrameType,
        id: u32,
    ) -> Result<Option<&mut Stream>, LinkError> {
        if id == KEYS {
            return Err(LinkError::WrongStream { frame, id });
        }
        if id > self.highest {
            return Err(LinkError::NeverOpened { frame, id, highest: self.highest });
        }
        Ok(self.streams.get_mut(&id).filter(|stream| stream.state.is_live()))
    }

    /// Frames of the link itself carry stream 0; version 1 never looked at that.
    fn on_link(&self, frame: FrameType, id: u32, keep: usize) -> Result<usize, LinkError> {
        match self.version {
            Version::Two if id != 0 => Err(LinkError::WrongStream { frame, id }),
            Version::One | Version::Two => Ok(keep),
        }
    }
}

fn at_most(frame: FrameType, limit: usize, came: usize) -> Result<usize, LinkError> {
    if came <= limit { Ok(limit) } else { Err(LinkError::PayloadTooLong { frame, limit, came }) }
}

fn exactly(frame: FrameType, expected: usize, came: usize) -> Result<usize, LinkError> {
    if came == expected {
        Ok(expected)
    } else {
        Err(LinkError::PayloadSize { frame, expected, came })
    }
}
