//! Frames: length, type, stream id, payload; their bounds, a streaming decoder, and the encoder.
//!
//! The decoder holds a header at most. Payloads pass through it as slices of the input, so that nothing
//! of a frame has to be in memory before it is known what the frame is and where it goes.

use std::fmt;

use super::LinkError;

/// The type and stream id that a frame's length counts beside its payload.
const COUNTED: usize = 5;

/// The longest frame, as version 1 has it.
const LONGEST: usize = 1024 * 1024;

/// The largest payload of any frame.
pub const MAX_PAYLOAD: usize = LONGEST - COUNTED;

/// How DATA and PUBKEY are cut: large enough that headers cost nothing, small enough that a bulk transfer
/// delays another stream by a fraction of a millisecond. Two whole frames fill a pipe, to the byte.
pub const MAX_DATA: usize = 32 * 1024 - HEADER_BYTES;

/// A version, a program version and a few features.
pub(super) const HELLO_LIMIT: usize = 1024;
/// A report of what the helper has set up.
pub(super) const READY_LIMIT: usize = 16 * 1024;
/// A text for a person, from a target that may be hostile.
pub(super) const ERROR_LIMIT: usize = 4 * 1024;
/// The name of a lane; the longest has 9 bytes.
pub(super) const OPEN_LIMIT: usize = 64;
/// A u32 of credit.
pub(super) const WINDOW_SIZE: usize = 4;
/// An opaque u64.
pub(super) const PING_SIZE: usize = 8;
/// A secret and the path of a socket.
pub(super) const DIRECT_LIMIT: usize = 256;

const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = LENGTH_BYTES + COUNTED;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameType {
    /// Bytes of a stream.
    Data,
    /// The helper opens a stream; the payload names a lane.
    Open,
    /// A stream is at its end, both ways.
    Close,
    /// Public keys, from the host to the helper.
    Pubkey,
    /// What the helper has set up.
    Ready,
    /// Why the helper can't go on.
    Error,
    /// The first frame of version 2, both ways.
    Hello,
    /// Credit for a stream.
    Window,
    /// One direction of a stream is at its end.
    Eof,
    /// A question if the peer lives.
    Ping,
    /// The answer to it.
    Pong,
    /// The bridge ends: the helper is to undo what it did.
    Stop,
    /// What is needed for a second path between both ends.
    Direct,
    /// The last frame on this path: the rest takes the second one.
    Switch,
}

impl FrameType {
    /// The type that a byte stands for, in version 2.
    pub(super) const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Open),
            3 => Some(Self::Close),
            4 => Some(Self::Pubkey),
            5 => Some(Self::Ready),
            6 => Some(Self::Error),
            7 => Some(Self::Hello),
            8 => Some(Self::Window),
            9 => Some(Self::Eof),
            10 => Some(Self::Ping),
            11 => Some(Self::Pong),
            12 => Some(Self::Stop),
            13 => Some(Self::Direct),
            14 => Some(Self::Switch),
            _ => None,
        }
    }

    /// The byte that stands for the type.
    pub const fn wire(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Open => 2,
            Self::Close => 3,
            Self::Pubkey => 4,
            Self::Ready => 5,
            Self::Error => 6,
            Self::Hello => 7,
            Self::Window => 8,
            Self::Eof => 9,
            Self::Ping => 10,
            Self::Pong => 11,
            Self::Stop => 12,
            Self::Direct => 13,
            Self::Switch => 14,
        }
    }

    /// If version 1 has the type too.
    pub(super) const fn is_in_version_1(self) -> bool {
        self.wire() <= 6
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "DATA",
            Self::Open => "OPEN",
            Self::Close => "CLOSE",
            Self::Pubkey => "PUBKEY",
            Self::Ready => "READY",
            Self::Error => "ERROR",
            Self::Hello => "HELLO",
            Self::Window => "WINDOW",
            Self::Eof => "EOF",
            Self::Ping => "PING",
            Self::Pong => "PONG",
            Self::Stop => "STOP",
            Self::Direct => "DIRECT",
            Self::Switch => "SWITCH",
        })
    }
}

/// What stands before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The type as it came; it may be one that isn't known.
    pub(super) kind: u8,
    pub(super) stream: u32,
    /// The size of the payload.
    pub(super) payload: usize,
}

/// One step of decoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A frame begins.
    Header(Header),
    /// Bytes of its payload, never empty.
    Payload(&'a [u8]),
    /// The frame is whole.
    End,
}

/// Turns bytes into headers and pieces of payload.
#[derive(Debug)]
pub(super) enum Decoder {
    /// A header of which so many bytes have come.
    Header { have: usize, bytes: [u8; HEADER_BYTES] },
    /// A payload of which so many bytes are to come.
    Payload { left: usize },
}

impl Decoder {
    pub(super) const fn new() -> Self {
        Self::Header { have: 0, bytes: [0; HEADER_BYTES] }
    }

    /// The next piece, taken off the front of `input`; `None` when more input is needed.
    pub(super) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Piece<'a>>, LinkError> {
        match self {
            Self::Header { have, bytes } => {
                for (place, byte) in bytes.iter_mut().skip(*have).zip(input.iter()) {
                    *place = *byte;
                }
                let took = input.len().min(HEADER_BYTES - *have);
                *have += took;
                *input = input.get(took..).unwrap_or_default();
                if *have < LENGTH_BYTES {
                    return Ok(None);
                }
                // Judged before the rest of the header: a frame too short may have no rest.
                let [a, b, c, d, kind, stream @ ..] = *bytes;
                let payload = payload_size(u32::from_be_bytes([a, b, c, d]))?;
                if *have < HEADER_BYTES {
                    return Ok(None);
                }
                *self = Self::Payload { left: payload };
                let stream = u32::from_be_bytes(stream);
                Ok(Some(Piece::Header(Header { kind, stream, payload })))
            }
            Self::Payload { left: 0 } => {
                *self = Self::new();
                Ok(Some(Piece::End))
            }
            Self::Payload { left } => {
                let (now, later) = input.split_at(input.len().min(*left));
                *left -= now.len();
                *input = later;
                Ok((!now.is_empty()).then_some(Piece::Payload(now)))
            }
        }
    }
}

fn payload_size(length: u32) -> Result<usize, LinkError> {
    let counted = usize::try_from(length).unwrap_or(usize::MAX);
    if counted > LONGEST {
        return Err(LinkError::FrameTooLong { length });
    }
    counted.checked_sub(COUNTED).ok_or(LinkError::FrameTooShort { length })
}

/// Appends the header of a frame whose payload of this size the caller appends.
pub(super) fn put_header(out: &mut Vec<u8>, kind: FrameType, stream: u32, payload: usize) {
    debug_assert!(payload <= MAX_PAYLOAD);
    let length = u32::try_from(payload + COUNTED).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind.wire());
    out.extend_from_slice(&stream.to_be_bytes());
    tracing::trace!(frame = %kind, stream, payload, "sent");
}

/// Appends a whole frame.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: FrameType, stream: u32, payload: &[u8]) {
    put_header(out, kind, stream, payload.len());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPES: std::ops::RangeInclusive<u8> = 1..=14;

    #[test]
    fn a_type_and_its_byte_stand_for_each_other() {
        for byte in 0..=u8::MAX {
            let kind = FrameType::from_wire(byte);
            assert_eq!(kind.map(FrameType::wire), TYPES.contains(&byte).then_some(byte));
        }
    }

    #[test]
    fn a_bad_length_is_found_before_the_header_is_whole() {
        for (length, error) in [
            (4, LinkError::FrameTooShort { length: 4 }),
            (0, LinkError::FrameTooShort { length: 0 }),
            (1_048_577, LinkError::FrameTooLong { length: 1_048_577 }),
            (u32::MAX, LinkError::FrameTooLong { length: u32::MAX }),
        ] {
            let bytes = length.to_be_bytes();
            assert_eq!(Decoder::new().next(&mut &bytes[..]), Err(error));
            assert_eq!(Decoder::new().next(&mut &bytes[..3]), Ok(None));
        }
        for length in [5, 1_048_576_u32] {
            assert_eq!(Decoder::new().next(&mut &length.to_be_bytes()[..]), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_split(
            frames in proptest::collection::vec(
                (TYPES, any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
            pieces in proptest::collection::vec(1usize..40, 1..50),
        ) {
            let mut bytes = Vec::new();
            for (kind, stream, payload) in &frames {
                put_frame(&mut bytes, FrameType::from_wire(*kind).unwrap(), *stream, payload);
            }
            let mut decoder = Decoder::new();
            let mut decoded = Vec::new();
            let mut open = None;
            let mut sizes = pieces.iter().cycle();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (mut input, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                rest = later;
                while let Some(piece) = decoder.next(&mut input).unwrap() {
                    match piece {
                        Piece::Header(header) => open = Some((header, Vec::new())),
                        Piece::Payload(part) => open.as_mut().unwrap().1.extend_from_slice(part),
                        Piece::End => decoded.push(open.take().unwrap()),
                    }
                }
                prop_assert!(input.is_empty());
            }
            prop_assert!(open.is_none());
            let decoded: Vec<_> = decoded.into_iter().map(|(header, payload)| {
                assert_eq!(header.payload, payload.len());
                (header.kind, header.stream, payload)
            }).collect();
            prop_assert_eq!(decoded, frames);
        }
    }
}
