//! Frames to send: control frames first, then bytes of the streams in turns.

use std::collections::BTreeMap;

use super::endpoint::{Endpoint, HIGH_WATER, KEYS};
use super::frame::{MAX_DATA, put_frame, put_header};
use super::{End, Event, FrameType, StreamId, Version};

/// When a buffer is full enough to be written: as much as a pipe takes at once. More would only delay
/// control frames.
const TRANSMIT_SIZE: usize = 64 * 1024;

impl Endpoint {
    /// Appends frames until `out` holds about 64 KiB.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        if self.dead.is_some() {
            self.put_error(out);
            return;
        }
        self.put_link_frames(out);
        self.put_stream_control(out);
        self.put_bytes(out);
    }

    /// Whether [`Self::transmit`] has something to append.
    pub fn wants_transmit(&self) -> bool {
        if self.dead.is_some() {
            return self.frames.waiting.contains_key(&FrameType::Error);
        }
        !self.frames.is_empty() || !self.refusals.is_empty() || !self.schedule.is_idle()
    }

    fn put_link_frames(&mut self, out: &mut Vec<u8>) {
        if out.len() >= TRANSMIT_SIZE {
            return;
        }
        for (kind, payload) in std::mem::take(&mut self.frames.waiting) {
            put_frame(out, kind, 0, &payload);
        }
    }

    fn put_error(&mut self, out: &mut Vec<u8>) {
        if let Some(error) = self.frames.waiting.remove(&FrameType::Error) {
            put_frame(out, FrameType::Error, 0, &error);
        }
    }

    /// Puts OPEN, WINDOW and CLOSE. They have to be sent before DATA, so that the peer never counts more
    /// streams or bytes in flight than this end.
    fn put_stream_control(&mut self, out: &mut Vec<u8>) {
        while out.len() < TRANSMIT_SIZE {
            if let Some(id) = self.refusals.pop_front() {
                put_frame(out, FrameType::Close, id, &[]);
                continue;
            }
            let Some(id) = self.schedule.next_control() else {
                return;
            };
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            if let Some(lane) = stream.open_due.take() {
                put_frame(out, FrameType::Open, id, lane.wire_name().as_bytes());
            }
            if std::mem::take(&mut stream.credit_due) {
                let credit = stream.credit.take();
                let given = stream.received.give_back(&mut self.received, id, credit);
                debug_assert_eq!(given, Ok(()));
                stream.data_pace.reset();
                let credit = u32::try_from(credit).unwrap_or(u32::MAX);
                put_frame(out, FrameType::Window, id, &credit.to_be_bytes());
            }
            if stream.state.is_closing() {
                put_frame(out, FrameType::Close, id, &[]);
                self.forget(id);
            }
        }
    }

    fn put_bytes(&mut self, out: &mut Vec<u8>) {
        while let Some(id) = self.schedule.front() {
            let Some(stream) = self.streams.get_mut(&id) else {
                self.schedule.took_turn(false);
                continue;
            };
            let count = stream.outbound.len().min(stream.sent.room(&self.sent)).min(MAX_DATA);
            if count == 0 && !stream.end_is_due() {
                self.schedule.block(id, stream.sent.waits_for_link());
                continue;
            }
            if out.len() >= TRANSMIT_SIZE {
                return;
            }
            if count > 0 {
                let kind = if id == KEYS { FrameType::Pubkey } else { FrameType::Data };
                put_header(out, kind, id, count);
                stream.outbound.move_to(&mut self.pool, count, out);
                stream.data_pace.reset();
                if self.version == Version::Two {
                    stream.sent.send(&mut self.sent, count);
                }
            }
            let end_is_due = stream.end_is_due();
            self.schedule.took_turn(!stream.outbound.is_empty());
            if end_is_due {
                self.put_end(id, out);
            }
            self.wake(id);
        }
    }

    /// Puts the frame that ends our direction.
    fn put_end(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        match self.version {
            Version::Two if id == KEYS => {
                put_frame(out, FrameType::Pubkey, KEYS, &[]);
                stream.state.series_sent();
            }
            Version::Two => {
                put_frame(out, FrameType::Eof, id, &[]);
                stream.state.end_sent();
            }
            Version::One => {
                put_frame(out, FrameType::Close, id, &[]);
                self.closed(id);
            }
        }
    }

    pub(super) fn room_to_write(&self, id: u32) -> usize {
        let Some(stream) = self.streams.get(&id) else {
            return 0;
        };
        if !stream.state.is_writable() {
            return 0;
        }
        if id == KEYS && self.end == End::Helper {
            return 0;
        }
        stream.sent.room(&self.sent).min(HIGH_WATER).saturating_sub(stream.outbound.len())
    }

    /// Queues a stream that has something to send.
    pub(super) fn schedule_bytes(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if stream.end_is_due() || (!stream.outbound.is_empty() && stream.sent.room(&self.sent) > 0)
        {
            self.schedule.ready(id);
        } else if !stream.outbound.is_empty() {
            self.schedule.block(id, stream.sent.waits_for_link());
        }
    }

    /// Credit came for a stream, or its bytes in flight were dropped: it can send again. If the
    /// link's window was used up, so can all that waited for it.
    pub(super) fn credit_came(&mut self, id: u32, link_had_room: bool) {
        self.schedule_bytes(id);
        self.wake(id);
        if !link_had_room && self.sent.room() > 0 {
            self.schedule.unblock();
            for _ in 0..self.schedule.waiting_len() {
                if let Some(waiting) = self.schedule.next_waiting() {
                    self.schedule.wait(waiting);
                    self.wake(waiting);
                }
            }
        }
    }

    /// Reports to a waiting writer that it can write.
    pub(super) fn wake(&mut self, id: u32) {
        if self.room_to_write(id) > 0 && self.schedule.stop_waiting(id) {
            self.events.push_back(Event::Writable(StreamId::new(id)));
        }
    }
}

/// Frames of the link itself: at most one of each type waits.
#[derive(Debug)]
pub(super) struct LinkFrames {
    version: Version,
    /// The payloads, in the order in which they are sent.
    waiting: BTreeMap<FrameType, Vec<u8>>,
}

impl LinkFrames {
    pub(super) const fn new(version: Version) -> Self {
        Self { version, waiting: BTreeMap::new() }
    }

    /// Has a frame sent, in place of one of the same type that still waits; none if the version has no such
    /// frames.
    pub(super) fn send(&mut self, kind: FrameType, payload: &[u8]) {
        if kind.rules().since <= self.version {
            self.waiting.insert(kind, payload.to_vec());
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
