//! Checks the headers of received frames and decides where their payloads go.

use super::super::FrameType;
use super::super::frame::Header;
use super::super::frame_type::{Payload, Rules, Scope, Sender};
use super::super::stream::Stream;
use super::incoming::Sink;
use super::{End, Endpoint, Event, KEYS, LinkError, StreamId, Version};
use crate::Lane;

/// What one stream of version 1 may hold for a stalled reader: the largest frame fits.
pub const VERSION_1_STREAM_BOUND: usize = 1024 * 1024;

/// What all streams of a version 1 link together may hold: as much as eight stalled readers.
pub const VERSION_1_LINK_BOUND: usize = 8 * 1024 * 1024;

impl Endpoint {
    /// Decides by the header alone whether a frame may come and where its payload goes.
    pub(super) fn admit(&mut self, header: Header) -> Result<Sink, LinkError> {
        let Header { kind: byte, stream: id, payload: came } = header;
        self.begin(byte)?;
        let known = FrameType::from_wire(byte).filter(|kind| self.knows(kind.rules()));
        let Some(kind) = known else {
            return self.unknown(byte);
        };
        let rules = kind.rules();
        if !self.peer_sends(rules) {
            return Err(LinkError::WrongEnd { frame: kind });
        }
        if kind == FrameType::Switch && !self.incoming.may_switch {
            return Err(LinkError::UnexpectedSwitch);
        }
        self.check_stream(kind, id)?;
        let keep = match rules.payload {
            Payload::Bytes if rules.scope == Scope::Keys => return self.admit_keys(came),
            Payload::Bytes => return self.admit_data(id, came),
            Payload::AtMost(limit) if came > limit => {
                return Err(LinkError::PayloadTooLong { frame: kind, limit, came });
            }
            Payload::AtMost(limit) | Payload::CutTo(limit) => limit,
            Payload::Exactly(expected) => exactly(kind, expected, came)?,
            Payload::Empty => match self.version {
                Version::One => 0,
                Version::Two => exactly(kind, 0, came)?,
            },
        };
        Ok(Sink::Control { kind, stream: id, keep })
    }

    /// Checks that the peer begins with the frame that its version begins with.
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

    /// Whether this version has such frames. Version 1 doesn't tell those of the wrong end from
    /// unknown ones.
    fn knows(&self, rules: Rules) -> bool {
        match (self.version, rules.since) {
            (Version::One, Version::One) => self.peer_sends(rules),
            (Version::One, Version::Two) => false,
            (Version::Two, Version::One | Version::Two) => true,
        }
    }

    fn peer_sends(&self, rules: Rules) -> bool {
        match rules.sender {
            Sender::Host => self.end == End::Helper,
            Sender::Helper => self.end == End::Host,
            Sender::Both => true,
        }
    }

    /// Checks that a frame of this type can have this stream id.
    fn check_stream(&mut self, kind: FrameType, id: u32) -> Result<(), LinkError> {
        let wrong = Err(LinkError::WrongStream { frame: kind, id });
        match kind.rules().scope {
            // Version 1 never looked at it.
            Scope::Link if id != 0 && self.version == Version::Two => wrong,
            Scope::Keys if id != KEYS => wrong,
            Scope::StreamOrKeys if id == KEYS => Ok(()),
            Scope::Stream | Scope::StreamOrKeys => self.live_stream(kind, id).map(drop),
            Scope::NewStream => self.check_order(id),
            Scope::Link | Scope::Keys => Ok(()),
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
                    // The stream that holds most has stalled. It needn't be the one that gets bytes now.
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

    fn admit_keys(&mut self, came: usize) -> Result<Sink, LinkError> {
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

    /// The stream of a frame; `None` if it is closed and the frame is to be dropped.
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
}

fn exactly(frame: FrameType, expected: usize, came: usize) -> Result<usize, LinkError> {
    if came == expected {
        Ok(expected)
    } else {
        Err(LinkError::PayloadSize { frame, expected, came })
    }
}
