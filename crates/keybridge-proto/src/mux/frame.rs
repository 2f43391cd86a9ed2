//! Frames: length, type, stream id and payload; a streaming decoder and the encoder.
//!
//! The decoder holds at most a header. Payloads pass through as slices of the input, so nothing of a
//! frame is stored before its header was checked.

use super::{FrameType, LinkError};

/// The type and stream id that a frame's length counts beside its payload.
const COUNTED: usize = 5;

/// The longest frame, as version 1 has it.
const LONGEST: usize = 1024 * 1024;

/// The largest payload of any frame.
pub const MAX_PAYLOAD: usize = LONGEST - COUNTED;

/// The largest payload of DATA and PUBKEY that is sent: large enough that headers cost nothing, small
/// enough that a bulk transfer delays another stream by a fraction of a millisecond. Two frames fill
/// a pipe exactly.
pub const MAX_DATA: usize = 32 * 1024 - HEADER_BYTES;

const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = LENGTH_BYTES + COUNTED;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The type, which may be unknown.
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
                // Checked before the rest of the header: a frame that is too short may not have one.
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
                (1..=12_u8, any::<u32>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
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
