//! Version 1 of the protocol, as frames and events of version 2.
//!
//! ```text
//! version 2                  version 1
//! HELLO                      one PUBKEY of the host with all the keys, nothing of the helper
//! PUBKEY and an empty one    PUBKEY
//! OPEN with the next id      OPEN with a higher id
//! DATA within its credit     DATA; a stream whose reader stalls is closed
//! EOF                        CLOSE of the host, nothing of the helper
//! WINDOW, PING, PONG, STOP   nothing
//! ```

use super::FrameType;
use super::endpoint::{Endpoint, KEYS};
use super::frame::{Header, MAX_PAYLOAD};
use super::incoming::Sink;
use super::outgoing::LinkFrames;
use super::stream::Stream;
use super::{End, Event, LinkError, StreamId, Version};
use crate::Lane;

/// What one stream of version 1 may hold for a stalled reader: the largest frame fits.
pub const VERSION_1_STREAM_BOUND: usize = 1024 * 1024;

/// What all streams of a version 1 link together may hold: as much as eight stalled readers.
pub const VERSION_1_LINK_BOUND: usize = 8 * 1024 * 1024;

/// Has a host send its keys, before anything else and never again.
pub(super) fn begin(
    end: End,
    keys: Option<Vec<u8>>,
    frames: &mut LinkFrames,
    stream: &mut Stream,
) -> Result<(), LinkError> {
    if end == End::Helper {
        return Ok(());
    }
    stream.state.finish();
    stream.state.end_sent();
    match keys {
        Some(keys) if keys.len() > MAX_PAYLOAD => {
            Err(LinkError::KeysTooLong { limit: MAX_PAYLOAD })
        }
        Some(keys) => {
            frames.send(FrameType::Pubkey, &keys);
            Ok(())
        }
        None => Ok(()),
    }
}

impl Endpoint {
    pub(super) fn is_version_1_helper(&self) -> bool {
        (self.version, self.end) == (Version::One, End::Helper)
    }

    /// Decides by the header alone whether a frame may come and where its payload goes.
    pub(super) fn admit_version_1(&mut self, mut header: Header) -> Result<Sink, LinkError> {
        // Those of the wrong end are not told from unknown ones.
        let known = FrameType::from_wire(header.kind).filter(|kind| {
            let rules = kind.rules();
            rules.since == Version::One && self.peer_sends(rules)
        });
        if self.end == End::Helper && !self.said_ready {
            self.expect_keys(known, header.kind)?;
        }
        let Some(kind) = known else {
            return self.skip();
        };
        match kind {
            FrameType::Data => return self.admit_data_version_1(header),
            // Ids that were left out count as closed.
            FrameType::Open => self.highest = self.highest.max(header.stream.saturating_sub(1)),
            FrameType::Ready | FrameType::Error => header.stream = 0,
            // What comes with CLOSE is dropped, and PUBKEY ends its series whatever its size.
            FrameType::Close | FrameType::Pubkey => header.payload = 0,
            FrameType::Hello
            | FrameType::Pong
            | FrameType::Ping
            | FrameType::Stop
            | FrameType::Window
            | FrameType::Eof => {}
        }
        self.admit(header)
    }

    /// Checks that the host begins with its keys, and until READY sends nothing that is unknown.
    fn expect_keys(&mut self, known: Option<FrameType>, came: u8) -> Result<(), LinkError> {
        match known {
            Some(FrameType::Pubkey) => self.incoming.begun = true,
            _ if !self.incoming.begun && self.lanes.contains(&Lane::Gpg) => {
                return Err(LinkError::ExpectedKeys { came });
            }
            Some(_) => {}
            None => return Err(LinkError::UnknownType { came }),
        }
        Ok(())
    }

    /// Without credit, a bound limits what is held for readers.
    fn admit_data_version_1(&mut self, header: Header) -> Result<Sink, LinkError> {
        let Header { stream: id, payload: came, .. } = header;
        let Some(stream) = self.live_stream(FrameType::Data, id)? else {
            return self.skip();
        };
        let holds = stream.inbound.len();
        if !stream.data_pace.admits(came) {
            self.spend()?;
        }
        if holds + came > VERSION_1_STREAM_BOUND {
            self.close_by_bound(id);
            return self.skip();
        }
        while self.held + came > VERSION_1_LINK_BOUND {
            // The stream that holds most has stalled. It needn't be the one that gets bytes now.
            let would_hold = |(number, stream): &(&u32, &Stream)| {
                stream.inbound.len() + if **number == id { came } else { 0 }
            };
            let streams = self.streams.iter().filter(|(number, _)| **number != KEYS);
            let heaviest = streams.max_by_key(would_hold).map_or(id, |(heaviest, _)| *heaviest);
            self.close_by_bound(heaviest);
            if heaviest == id {
                return self.skip();
            }
        }
        Ok(Sink::Bytes(id))
    }

    fn close_by_bound(&mut self, id: u32) {
        let id = StreamId::new(id);
        self.close(id);
        self.events.push_back(Event::Closed(id));
    }

    /// What the host sent before its CLOSE can still be read.
    pub(super) fn closed_by_version_1_host(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.state.is_closing() {
            return self.closed(id);
        }
        let was_live = stream.state.is_live();
        stream.state.peer_closed();
        stream.outbound.clear(&mut self.pool);
        let all_read = stream.inbound.is_empty();
        self.schedule.forget_bytes(id);
        if was_live {
            self.events.push_back(Event::Finished(StreamId::new(id)));
            if all_read {
                self.events.push_back(Event::Closed(StreamId::new(id)));
            }
        }
    }
}
