//! What a link sends: control frames first, then bytes of the streams in turns.

use super::super::frame::{FrameType, MAX_DATA, MAX_PAYLOAD, put_frame, put_header};
use super::super::stream::Stream;
use super::{End, Endpoint, Event, HIGH_WATER, KEYS, StreamId, Version};

/// When a buffer is full enough to be written: as much as a pipe takes at once, so that what comes up in
/// the meantime isn't behind more than that.
pub const TRANSMIT_SIZE: usize = 64 * 1024;

impl Endpoint {
    /// Appends the frames that are ready, until `out` holds about [`TRANSMIT_SIZE`]. What comes after a
    /// SWITCH is for another call: [`Self::has_switched`] tells that it is for the second path.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        if self.dead.is_some() {
            self.put_error(out);
            return;
        }
        if self.frames.switch == Switch::Due && self.frames.hello.is_none() {
            put_frame(out, FrameType::Switch, 0, &[]);
            self.frames.switch = Switch::Sent;
            return;
        }
        if self.put_keys_frame(out) {
            self.put_link_frames(out);
            self.put_stream_control(out);
            self.put_bytes(out);
        }
    }

    /// If [`Self::transmit`] has something to append.
    pub fn wants_transmit(&self) -> bool {
        if self.dead.is_some() {
            return self.frames.error.is_some();
        }
        match self.keys_frame {
            KeysFrame::Held => false,
            KeysFrame::Due | KeysFrame::Sending => true,
            KeysFrame::Done => {
                !self.frames.is_empty() || !self.refusals.is_empty() || !self.schedule.is_idle()
            }
        }
    }

    /// Puts the one PUBKEY of a version 1 host, in parts if need be; true when nothing of it is left.
    fn put_keys_frame(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(keys) = self.streams.get_mut(&KEYS) else {
            return true;
        };
        match self.keys_frame {
            KeysFrame::Done => return true,
            KeysFrame::Held => return false,
            KeysFrame::Due => {
                if out.len() >= TRANSMIT_SIZE {
                    return false;
                }
                put_header(out, FrameType::Pubkey, KEYS, keys.outbound.len());
                self.keys_frame = KeysFrame::Sending;
            }
            KeysFrame::Sending => {}
        }
        let room = TRANSMIT_SIZE.saturating_sub(out.len());
        keys.outbound.move_to(&mut self.pool, room, out);
        if !keys.outbound.is_empty() {
            return false;
        }
        keys.state.end_sent();
        self.keys_frame = KeysFrame::Done;
        true
    }

    fn put_link_frames(&mut self, out: &mut Vec<u8>) {
        if out.len() >= TRANSMIT_SIZE {
            return;
        }
        if let Some(hello) = self.frames.hello.take() {
            put_frame(out, FrameType::Hello, 0, &hello);
        }
        if let Some(pong) = self.frames.pong.take() {
            put_frame(out, FrameType::Pong, 0, &pong.to_be_bytes());
        }
        if let Some(ping) = self.frames.ping.take() {
            put_frame(out, FrameType::Ping, 0, &ping.to_be_bytes());
        }
        if std::mem::take(&mut self.frames.stop) {
            put_frame(out, FrameType::Stop, 0, &[]);
        }
        if let Some(direct) = self.frames.direct.take() {
            put_frame(out, FrameType::Direct, 0, &direct);
        }
        if let Some(ready) = self.frames.ready.take() {
            put_frame(out, FrameType::Ready, 0, &ready);
        }
        self.put_error(out);
    }

    fn put_error(&mut self, out: &mut Vec<u8>) {
        if let Some(error) = self.frames.error.take() {
            put_frame(out, FrameType::Error, 0, &error);
        }
    }

    /// Puts OPEN, WINDOW and CLOSE. None of them may be behind DATA: the peer's count of streams and of
    /// bytes in flight must not be above ours.
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
            let credit = match self.version {
                Version::One => usize::MAX,
                Version::Two => stream.sent.room(&self.sent),
            };
            let count = stream.outbound.len().min(credit).min(MAX_DATA);
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
                match self.version {
                    Version::One => {}
                    Version::Two => stream.sent.send(&mut self.sent, count),
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

    /// Says that our direction is at its end.
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
                self.drop_bytes(id);
                self.forget(id);
                self.events.push_back(Event::Closed(StreamId::new(id)));
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
        let queued = stream.outbound.len();
        if id == KEYS {
            match self.end {
                End::Helper => return 0,
                // At least 1, so that a writer of too much is told so instead of waiting for ever.
                End::Host if !self.keys_frame.is_done() => return (MAX_PAYLOAD - queued).max(1),
                End::Host => {}
            }
        }
        self.credit(stream).min(HIGH_WATER).saturating_sub(queued)
    }

    /// Gives a stream its place among those that send.
    pub(super) fn schedule_bytes(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if stream.end_is_due() || (!stream.outbound.is_empty() && self.credit(stream) > 0) {
            self.schedule.ready(id);
        } else if !stream.outbound.is_empty() {
            self.schedule.block(id, stream.sent.waits_for_link());
        }
    }

    /// A stream's credit came, or the link's because the stream was closed: whoever it helps goes on.
    /// Only the first room of a used up link helps others; after that nobody waits for it any more.
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

    /// Tells a waiting writer that it can write.
    pub(super) fn wake(&mut self, id: u32) {
        if self.room_to_write(id) > 0 && self.schedule.stop_waiting(id) {
            self.events.push_back(Event::Writable(StreamId::new(id)));
        }
    }

    fn credit(&self, stream: &Stream) -> usize {
        match self.version {
            Version::One => usize::MAX,
            Version::Two => stream.sent.room(&self.sent),
        }
    }
}

/// Frames of the link itself: at most one of each waits.
#[derive(Debug)]
pub(super) struct LinkFrames {
    pub(super) hello: Option<Vec<u8>>,
    /// The newest PING that has no answer yet.
    pub(super) pong: Option<u64>,
    pub(super) stop: bool,
    pub(super) ping: Option<u64>,
    pub(super) ready: Option<Vec<u8>>,
    pub(super) error: Option<Vec<u8>>,
    pub(super) direct: Option<Vec<u8>>,
    pub(super) switch: Switch,
}

/// Whether what is sent takes the second path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    /// It doesn't.
    Not,
    /// It will, after a SWITCH.
    Due,
    /// It does.
    Sent,
}

impl LinkFrames {
    pub(super) fn new(hello: Option<Vec<u8>>) -> Self {
        Self {
            hello,
            pong: None,
            stop: false,
            ping: None,
            ready: None,
            error: None,
            direct: None,
            switch: Switch::Not,
        }
    }

    fn is_empty(&self) -> bool {
        let Self { hello, pong, stop, ping, ready, error, direct, switch } = self;
        hello.is_none()
            && pong.is_none()
            && !stop
            && ping.is_none()
            && ready.is_none()
            && error.is_none()
            && direct.is_none()
            && *switch != Switch::Due
    }
}

/// The one PUBKEY of a version 1 host, before which it sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeysFrame {
    /// It isn't whole yet.
    Held,
    /// It is whole, and nothing of it is sent.
    Due,
    /// Its header is sent.
    Sending,
    /// It is sent, or this end has no such frame.
    Done,
}

impl KeysFrame {
    pub(super) const fn new(end: End, version: Version) -> Self {
        match (end, version) {
            (End::Host, Version::One) => Self::Held,
            (End::Host, Version::Two) | (End::Helper, Version::One | Version::Two) => Self::Done,
        }
    }

    pub(super) fn is_done(self) -> bool {
        self == Self::Done
    }
}
