//! One end of a link, as its owner calls it. Received frames are handled in `incoming` and checked in
//! `admit`; frames to send are made in `outgoing`. All of this speaks version 2, and `version_1` translates.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::flow::LinkFlow;
use super::frame_type::{ERROR_LIMIT, FrameType, READY_LIMIT};
use super::incoming::Incoming;
use super::outgoing::LinkFrames;
use super::pace::FrameBudget;
use super::queue::ChunkPool;
use super::schedule::Schedule;
use super::stream::Stream;
use super::version_1;
use super::{Config, End, Event, Hello, LinkError, StreamId, Version};
use crate::Lane;

/// How much a writer may queue on one stream: about as much as one call of [`Endpoint::transmit`] takes.
pub const HIGH_WATER: usize = 64 * 1024;

/// Stream 0 carries keys.
pub(super) const KEYS: u32 = StreamId::KEYS.get();

/// One end of a link, owned by the code that moves its bytes. It ends with its connection.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) end: End,
    pub(super) version: Version,
    pub(super) lanes: Vec<Lane>,
    pub(super) max_streams: usize,
    /// The fault of the peer that ended the link.
    pub(super) dead: Option<LinkError>,
    pub(super) events: VecDeque<Event>,
    /// Stream 0, and every other from its OPEN until both ends have closed it.
    pub(super) streams: BTreeMap<u32, Stream>,
    /// The highest id that was ever opened.
    pub(super) highest: u32,
    pub(super) pool: ChunkPool,
    /// How many bytes all streams hold for their readers.
    pub(super) held: usize,
    pub(super) sent: LinkFlow,
    pub(super) received: LinkFlow,
    pub(super) schedule: Schedule,
    /// Streams that were refused and are to be closed.
    pub(super) refusals: VecDeque<u32>,
    pub(super) frames: LinkFrames,
    pub(super) incoming: Incoming,
    /// A host's limit on frames that no credit bounds.
    pub(super) budget: Option<FrameBudget>,
    pub(super) said_ready: bool,
}

impl Endpoint {
    /// An end before the first byte.
    pub fn new(config: Config) -> Result<Self, LinkError> {
        let Config { end, version, lanes, max_streams, .. } = config;
        let (mut frames, mut keys) = (LinkFrames::new(version), Stream::default());
        match version {
            Version::One => version_1::begin(end, config.version_1_keys, &mut frames, &mut keys)?,
            Version::Two => frames.send(FrameType::Hello, &Hello::encode()),
        }
        // Keys go only to the helper, so one direction has one stream more.
        let (sending, receiving, budget) = match end {
            End::Host => (max_streams.saturating_add(1), max_streams, Some(FrameBudget::FULL)),
            End::Helper => (max_streams, max_streams.saturating_add(1), None),
        };
        Ok(Self {
            end,
            version,
            lanes,
            max_streams,
            dead: None,
            events: VecDeque::new(),
            streams: BTreeMap::from([(KEYS, keys)]),
            highest: 0,
            pool: ChunkPool::default(),
            held: 0,
            sent: LinkFlow::new(sending),
            received: LinkFlow::new(receiving),
            schedule: Schedule::default(),
            refusals: VecDeque::new(),
            frames,
            incoming: Incoming::new(),
            budget,
            said_ready: false,
        })
    }

    /// Time has passed. To be called before [`Self::receive`]: only with time may the peer send more frames
    /// that no credit bounds.
    pub fn pass_time(&mut self, now: Instant) {
        if let Some(budget) = &mut self.budget {
            budget.earn(now);
        }
    }

    /// The next event, in order. To be called after every call that changes the link:
    /// [`Self::transmit`] and [`Self::close`] can make room to write. Events from before a fault of
    /// the peer are still delivered.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Opens a stream (helper only).
    pub fn open(&mut self, lane: Lane) -> Result<StreamId, LinkError> {
        self.alive()?;
        self.at_end(End::Helper, "open")?;
        // A stream counts until its CLOSE is sent, so the host never counts more than this end.
        if self.open_streams() >= self.max_streams {
            return Err(LinkError::TooManyStreams { limit: self.max_streams });
        }
        let id = self.highest.checked_add(1).ok_or(LinkError::StreamIdsExhausted)?;
        self.highest = id;
        self.streams.insert(id, Stream::opening(lane));
        self.schedule.control(id);
        Ok(StreamId::new(id))
    }

    /// How many bytes a writer should write now. After 0, [`Event::Writable`] says when there is room
    /// again.
    pub fn writable(&mut self, id: StreamId) -> usize {
        let room = self.room_to_write(id.get());
        if room == 0 && self.streams.get(&id.get()).is_some_and(|stream| stream.state.is_live()) {
            self.schedule.wait(id.get());
        }
        room
    }

    /// Queues bytes. More than [`Self::writable`] says is allowed: what exceeds the credit waits.
    /// Bytes for a closed stream are dropped; its [`Event::Closed`] is already queued.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<(), LinkError> {
        self.alive()?;
        let number = id.get();
        if number == KEYS {
            self.at_end(End::Host, "writing keys")?;
        }
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if !stream.state.is_writable() {
            return match stream.state.is_live() {
                true if number == KEYS => Err(LinkError::KeysEnded),
                true => Err(LinkError::WriteAfterFinish { id }),
                false => Ok(()),
            };
        }
        stream.outbound.push(&mut self.pool, bytes);
        self.schedule_bytes(number);
        if self.room_to_write(number) == 0 {
            self.schedule.wait(number);
        }
        Ok(())
    }

    /// Ends our direction after the queued bytes. In version 1 the host then closes the stream, and
    /// [`Event::Closed`] follows; the helper can't, and nothing happens.
    pub fn finish(&mut self, id: StreamId) {
        let number = id.get();
        if number == KEYS || self.is_version_1_helper() || self.dead.is_some() {
            return;
        }
        if self.streams.get_mut(&number).is_some_and(|stream| stream.state.finish()) {
            self.schedule_bytes(number);
        }
    }

    /// Ends a stream at once, both ways, and drops what it has queued or received. Stream
    /// [`StreamId::KEYS`] can't be closed.
    pub fn close(&mut self, id: StreamId) {
        let number = id.get();
        if number == KEYS {
            return;
        }
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        if stream.state.is_closing() {
            return;
        }
        let tell = stream.state.close();
        self.drop_bytes(number);
        if tell {
            self.schedule.control(number);
        } else {
            self.forget(number);
        }
    }

    /// Whether a stream is open. It may be closed before its [`Event::Opened`] is polled.
    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.get(&id.get()).is_some_and(|stream| stream.state.is_live())
    }

    /// What can be read from a stream, in contiguous pieces. A reader has to consume as it reads: no more
    /// than a window is ever held for it.
    pub fn received(&self, id: StreamId) -> impl Iterator<Item = &[u8]> {
        self.streams.get(&id.get()).into_iter().flat_map(|stream| stream.inbound.slices())
    }

    /// The first contiguous piece of what can be read; empty only if there is nothing.
    pub fn front(&self, id: StreamId) -> &[u8] {
        self.streams.get(&id.get()).map_or(&[], |stream| stream.inbound.front())
    }

    /// Drops bytes that were read, and gives credit for them.
    pub fn consume(&mut self, id: StreamId, count: usize) {
        let number = id.get();
        let Some(stream) = self.streams.get_mut(&number) else {
            return;
        };
        debug_assert!(count <= stream.inbound.len());
        let count = count.min(stream.inbound.len());
        stream.inbound.consume(&mut self.pool, count);
        self.held -= count;
        if stream.state.is_closed_by_peer() {
            if count > 0 && stream.inbound.is_empty() {
                self.events.push_back(Event::Closed(id));
            }
        } else if self.version == Version::Two
            && stream.credit.add(count, stream.inbound.is_empty())
        {
            stream.credit_due = true;
            self.schedule.control(number);
        }
    }

    /// Whether the peer has ended its direction and all of it was read.
    pub fn is_finished(&self, id: StreamId) -> bool {
        self.streams
            .get(&id.get())
            .is_some_and(|stream| stream.state.peer_is_finished() && stream.inbound.is_empty())
    }

    /// Ends the series of keys that was written (host only). The next one may begin when the helper has
    /// reported on this one.
    pub fn end_keys(&mut self) -> Result<(), LinkError> {
        self.alive()?;
        self.at_end(End::Host, "ending keys")?;
        if !self.streams.get_mut(&KEYS).is_some_and(|stream| stream.state.finish()) {
            return Err(LinkError::KeysEnded);
        }
        self.schedule_bytes(KEYS);
        Ok(())
    }

    /// The series of keys that ended with [`Event::KeysEnd`] was imported (helper only). What was not
    /// read of it is dropped.
    pub fn keys_done(&mut self) {
        let Some(stream) = self.streams.get_mut(&KEYS) else {
            return;
        };
        if stream.state.peer_is_finished() {
            stream.state.series_done();
            let unread = stream.inbound.len();
            self.consume(StreamId::KEYS, unread);
        }
    }

    /// Reports what is set up (helper only). Replaces a report that wasn't transmitted yet.
    pub fn ready(&mut self, payload: &[u8]) -> Result<(), LinkError> {
        self.alive()?;
        self.at_end(End::Helper, "ready")?;
        if payload.len() > READY_LIMIT {
            return Err(LinkError::ReadyTooLong { limit: READY_LIMIT, came: payload.len() });
        }
        self.frames.send(FrameType::Ready, payload);
        self.said_ready = true;
        Ok(())
    }

    /// Tells the host why this end can't go on (helper only), in 4 KiB at most. After a fault of the
    /// host it is the only frame that is still sent.
    pub fn fail(&mut self, text: &str) -> Result<(), LinkError> {
        self.at_end(End::Helper, "fail")?;
        let end = text.floor_char_boundary(ERROR_LIMIT);
        self.frames.send(FrameType::Error, text.get(..end).unwrap_or_default().as_bytes());
        Ok(())
    }

    /// Asks whether the peer is alive; [`Event::Pong`] brings the same number back. Replaces a PING that
    /// wasn't transmitted yet. Does nothing in version 1.
    pub fn ping(&mut self, number: u64) {
        self.frames.send(FrameType::Ping, &number.to_be_bytes());
    }

    /// Tells the helper that the bridge ends (host only). Does nothing in version 1.
    pub fn stop(&mut self) -> Result<(), LinkError> {
        self.alive()?;
        self.at_end(End::Host, "stop")?;
        self.frames.send(FrameType::Stop, &[]);
        Ok(())
    }

    /// How many bytes are held for readers, on all streams.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many sent bytes have no credit yet, on all streams; 0 in version 1.
    pub fn in_flight(&self) -> usize {
        self.sent.in_flight()
    }

    /// How many bytes are queued on a stream and not yet sent.
    pub fn queued(&self, id: StreamId) -> usize {
        self.streams.get(&id.get()).map_or(0, |stream| stream.outbound.len())
    }

    pub(super) fn alive(&self) -> Result<(), LinkError> {
        self.dead.clone().map_or(Ok(()), Err)
    }

    fn at_end(&self, end: End, call: &'static str) -> Result<(), LinkError> {
        if self.end == end { Ok(()) } else { Err(LinkError::NotAtThisEnd { call, end: self.end }) }
    }

    /// How many streams are open, without that of the keys.
    pub(super) fn open_streams(&self) -> usize {
        self.streams.len().saturating_sub(1)
    }

    /// Drops all bytes of a stream, held or in flight.
    pub(super) fn drop_bytes(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let link_had_room = self.sent.room() > 0;
        self.held -= stream.inbound.len();
        stream.inbound.clear(&mut self.pool);
        stream.outbound.clear(&mut self.pool);
        stream.sent.forget(&mut self.sent);
        stream.received.forget(&mut self.received);
        stream.credit.take();
        stream.credit_due = false;
        self.schedule.forget_bytes(id);
        self.credit_came(id, link_had_room);
    }

    /// Drops a stream whose bytes are dropped.
    pub(super) fn forget(&mut self, id: u32) {
        self.schedule.forget(id);
        self.streams.remove(&id);
    }
}
