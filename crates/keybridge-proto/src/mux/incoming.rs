//! Received frames. Each is checked by its header in `admit`, before any of its payload is stored.

use super::FrameType;
use super::endpoint::{Endpoint, KEYS};
use super::flow::CREDIT_OWED;
use super::frame::{Decoder, Piece};
use super::stream::Stream;
use super::{Event, Hello, LinkError, StreamId, Version};
use crate::{Lane, printable};

/// The decoder, and where the current payload goes.
#[derive(Debug)]
pub(super) struct Incoming {
    decoder: Decoder,
    sink: Sink,
    /// The payload of a control frame; never longer than the bound of its type.
    control: Vec<u8>,
    /// HELLO has come, or PUBKEY in version 1.
    pub(super) begun: bool,
    /// A refused lane was logged.
    logged_lane: bool,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            sink: Sink::Skip,
            control: Vec::new(),
            begun: false,
            logged_lane: false,
        }
    }
}

/// Where a payload goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sink {
    Skip,
    /// To a stream's reader.
    Bytes(u32),
    /// To the reader of keys; the series ends with this frame.
    LastKeys,
    /// To the buffer for control frames, cut to `keep` bytes.
    Control {
        kind: FrameType,
        stream: u32,
        keep: usize,
    },
}

impl Endpoint {
    /// Takes the peer's bytes. After an error the link is dead, and every later call returns the same
    /// error.
    pub fn receive(&mut self, input: &[u8]) -> Result<(), LinkError> {
        self.alive()?;
        self.take(input).inspect_err(|error| self.dead = Some(error.clone()))
    }

    fn take(&mut self, mut input: &[u8]) -> Result<(), LinkError> {
        while let Some(piece) = self.incoming.decoder.next(&mut input)? {
            match piece {
                Piece::Header(header) => {
                    tracing::trace!(kind = header.kind, header.stream, header.payload, "received");
                    self.incoming.control.clear();
                    self.incoming.sink = match self.version {
                        Version::One => self.admit_version_1(header)?,
                        Version::Two => {
                            self.begin(header.kind)?;
                            self.admit(header)?
                        }
                    };
                }
                Piece::Payload(bytes) => self.take_payload(bytes),
                Piece::End => self.take_end()?,
            }
        }
        Ok(())
    }

    fn take_payload(&mut self, bytes: &[u8]) {
        let id = match self.incoming.sink {
            Sink::Skip => return,
            Sink::Control { keep, .. } => {
                let room = keep.saturating_sub(self.incoming.control.len());
                self.incoming.control.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                return;
            }
            Sink::Bytes(id) => id,
            Sink::LastKeys => KEYS,
        };
        // The stream may have been closed since the header came.
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.state.is_live()) else {
            return;
        };
        let was_empty = stream.inbound.is_empty();
        stream.inbound.push(&mut self.pool, bytes);
        self.held += bytes.len();
        if was_empty {
            self.events.push_back(Event::Readable(StreamId::new(id)));
        }
    }

    fn take_end(&mut self) -> Result<(), LinkError> {
        match std::mem::replace(&mut self.incoming.sink, Sink::Skip) {
            Sink::Skip | Sink::Bytes(_) => Ok(()),
            Sink::LastKeys => {
                let keys = self.streams.get_mut(&KEYS);
                keys.map_or(Ok(()), |keys| keys.state.end_received())
                    .map_err(|_| LinkError::KeysTooSoon)?;
                self.events.push_back(Event::KeysEnd);
                Ok(())
            }
            Sink::Control { kind, stream, .. } => {
                let payload = std::mem::take(&mut self.incoming.control);
                let result = self.take_control(kind, stream, &payload);
                self.incoming.control = payload;
                result
            }
        }
    }

    fn take_control(&mut self, kind: FrameType, id: u32, payload: &[u8]) -> Result<(), LinkError> {
        match kind {
            FrameType::Data | FrameType::Pubkey => {
                debug_assert!(false, "{kind} is no control frame");
            }
            FrameType::Hello => self.events.push_back(Event::Hello(Hello::decode(payload)?)),
            FrameType::Ready => self.events.push_back(Event::Ready(payload.to_vec())),
            FrameType::Error => self.events.push_back(Event::Error(payload.to_vec())),
            FrameType::Open => return self.opened(id, payload),
            FrameType::Close if self.is_version_1_helper() => self.closed_by_version_1_host(id),
            FrameType::Close => self.closed(id),
            FrameType::Eof => {
                if let Some(stream) = self.live_stream(kind, id)? {
                    let ended = stream.state.end_received();
                    ended.map_err(|_| LinkError::AfterEof { frame: kind, id })?;
                    self.events.push_back(Event::Finished(StreamId::new(id)));
                }
            }
            FrameType::Window => {
                let credit = u32::from_be_bytes(array(kind, payload)?);
                return self.credited(id, usize::try_from(credit).unwrap_or(usize::MAX));
            }
            FrameType::Ping => self.frames.send(FrameType::Pong, payload),
            FrameType::Pong => {
                let number = u64::from_be_bytes(array(kind, payload)?);
                self.events.push_back(Event::Pong(number));
            }
            FrameType::Stop => self.events.push_back(Event::Stop),
        }
        Ok(())
    }

    fn opened(&mut self, id: u32, name: &[u8]) -> Result<(), LinkError> {
        self.highest = id;
        let lane = Lane::from_wire_name(name).filter(|lane| self.lanes.contains(lane));
        // Logged once for a link: a peer must not be able to fill the log.
        if lane.is_none() && !std::mem::replace(&mut self.incoming.logged_lane, true) {
            tracing::warn!(lane = %printable(name), "refused a stream for a lane that isn't served");
        }
        match lane {
            Some(lane) if self.open_streams() < self.max_streams => {
                self.streams.insert(id, Stream::default());
                self.events.push_back(Event::Opened { id: StreamId::new(id), lane });
            }
            Some(_) | None => {
                if self.refusals.len() >= self.max_streams {
                    return Err(LinkError::TooManyRefusals { limit: self.max_streams });
                }
                self.refusals.push_back(id);
            }
        }
        Ok(())
    }

    pub(super) fn closed(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let was_live = stream.state.is_live();
        self.drop_bytes(id);
        self.forget(id);
        if was_live {
            self.events.push_back(Event::Closed(StreamId::new(id)));
        }
    }

    fn credited(&mut self, id: u32, came: usize) -> Result<(), LinkError> {
        let link_had_room = self.sent.room() > 0;
        let live = self.streams.get_mut(&id).filter(|stream| stream.state.is_live());
        let is_bounded = live.is_some() && came >= CREDIT_OWED;
        if let Some(stream) = live {
            stream.sent.give_back(&mut self.sent, id, came)?;
            self.credit_came(id, link_had_room);
        }
        // What was sent bounds how often so much of it can be given back.
        if is_bounded { Ok(()) } else { self.spend() }
    }
}

fn array<const N: usize>(frame: FrameType, payload: &[u8]) -> Result<[u8; N], LinkError> {
    let came = payload.len();
    payload.try_into().map_err(|_| LinkError::PayloadSize { frame, expected: N, came })
}
