//! Checks the headers of received frames and decides where their payloads go.

use super::endpoint::{Endpoint, KEYS};
use super::frame::Header;
use super::frame_type::{Payload, Rules, Scope, Sender};
use super::incoming::Sink;
use super::pace::FrameBudget;
use super::stream::Stream;
use super::{End, FrameType, LinkError};

impl Endpoint {
    /// Decides by the header alone whether a frame may come and where its payload goes.
    pub(super) fn admit(&mut self, header: Header) -> Result<Sink, LinkError> {
        let Header { kind: byte, stream: id, payload: came } = header;
        let Some(kind) = FrameType::from_wire(byte) else {
            return self.skip();
        };
        let rules = kind.rules();
        match rules.payload {
            // Counted when the stream and its credit are known.
            Payload::Bytes => {}
            _ if kind == FrameType::Window => {}
            _ => self.spend()?,
        }
        if !self.peer_sends(rules) {
            return Err(LinkError::WrongEnd { frame: kind });
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
            Payload::Empty => exactly(kind, 0, came)?,
        };
        Ok(Sink::Control { kind, stream: id, keep })
    }

    /// Checks that the peer begins with HELLO.
    pub(super) fn begin(&mut self, came: u8) -> Result<(), LinkError> {
        let is_first = !std::mem::replace(&mut self.incoming.begun, true);
        match (is_first, came == FrameType::Hello.wire()) {
            (true, false) => Err(LinkError::ExpectedHello { came }),
            (false, true) => Err(LinkError::HelloTwice),
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// Counts a frame that no credit bounds.
    pub(super) fn spend(&mut self) -> Result<(), LinkError> {
        self.budget.as_mut().map_or(Ok(()), FrameBudget::spend)
    }

    /// Drops the payload of a frame, which no credit bounds then.
    pub(super) fn skip(&mut self) -> Result<Sink, LinkError> {
        self.spend()?;
        Ok(Sink::Skip)
    }

    pub(super) fn peer_sends(&self, rules: Rules) -> bool {
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
            Scope::Link | Scope::Keys if id != 0 => wrong,
            Scope::StreamOrKeys if id == KEYS => Ok(()),
            Scope::Stream | Scope::StreamOrKeys => self.live_stream(kind, id).map(drop),
            Scope::NewStream => self.check_order(id),
            Scope::Link | Scope::Keys => Ok(()),
        }
    }

    fn admit_data(&mut self, id: u32, came: usize) -> Result<Sink, LinkError> {
        let Some(stream) = self.live_stream(FrameType::Data, id)? else {
            return self.skip();
        };
        if stream.state.peer_is_finished() {
            return Err(LinkError::AfterEof { frame: FrameType::Data, id });
        }
        if !stream.data_pace.admits(came) {
            self.spend()?;
        }
        self.accept(id, came)
    }

    fn admit_keys(&mut self, came: usize) -> Result<Sink, LinkError> {
        if self.streams.get(&KEYS).is_some_and(|keys| keys.state.peer_is_finished()) {
            return Err(LinkError::KeysTooSoon);
        }
        if came == 0 { Ok(Sink::LastKeys) } else { self.accept(KEYS, came) }
    }

    fn accept(&mut self, id: u32, came: usize) -> Result<Sink, LinkError> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.received.accept(&mut self.received, id, came)?;
        }
        Ok(Sink::Bytes(id))
    }

    fn check_order(&self, came: u32) -> Result<(), LinkError> {
        let expected = self.highest.saturating_add(1);
        if came == expected && came > self.highest {
            Ok(())
        } else {
            Err(LinkError::OpenOutOfOrder { expected, came })
        }
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
