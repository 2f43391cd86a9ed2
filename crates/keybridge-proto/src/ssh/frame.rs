//! Frames: a length, a type and a body.

use std::fmt;

use super::{MessageType, Summary};

/// The longest frame, without its length: the limit of OpenSSH.
pub const MAX_FRAME: usize = 256 * 1024;

/// The size of a frame's length.
const LENGTH_SIZE: usize = 4;

/// An invalid length of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// There is no room for the type.
    #[error("expected a frame with a type, got one of length 0")]
    Empty,
    /// More than OpenSSH accepts.
    #[error("expected a frame of at most {MAX_FRAME} bytes, got one of {0}")]
    TooLong(u32),
}

/// A whole frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    kind: MessageType,
    body: &'a [u8],
}

// The body may be secret.
impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", Summary::new(self.kind, self.body.len()))
    }
}

impl<'a> Frame<'a> {
    /// A frame to be sent.
    pub fn new(kind: MessageType, body: &'a [u8]) -> Result<Self, FrameError> {
        let length = u32::try_from(body.len() + 1).unwrap_or(u32::MAX);
        check(length).map(|_| Self { kind, body })
    }

    /// Parses the frame at the beginning of the bytes, and returns it with its size. `None` if it
    /// isn't complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_SIZE>() else {
            return Ok(None);
        };
        let length = check(u32::from_be_bytes(*length))?;
        Ok(rest.get(..length).and_then(<[u8]>::split_first).map(|(&kind, body)| {
            let frame = Self { kind: MessageType(kind), body };
            (frame, LENGTH_SIZE + length)
        }))
    }

    /// Its type.
    pub const fn kind(&self) -> MessageType {
        self.kind
    }

    /// What follows the type.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The bytes of the frame.
    pub fn encode(&self) -> Vec<u8> {
        [&head(self.kind, self.body.len())[..], self.body].concat()
    }
}

/// The bytes of a frame before its body.
pub(super) fn head(kind: MessageType, body: usize) -> [u8; LENGTH_SIZE + 1] {
    // A body is within the limit, so its length fits.
    let [a, b, c, d] = u32::try_from(body + 1).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, kind.0]
}

/// The bytes of a frame without a body.
pub(super) fn bare(kind: MessageType) -> [u8; LENGTH_SIZE + 1] {
    head(kind, 0)
}

/// The answer to a request that is refused.
pub(super) const FAILURE: [u8; LENGTH_SIZE + 1] = [0, 0, 0, 1, MessageType::FAILURE.0];

fn check(length: u32) -> Result<usize, FrameError> {
    match usize::try_from(length) {
        Ok(0) => Err(FrameError::Empty),
        Ok(length) if length <= MAX_FRAME => Ok(length),
        Ok(_) | Err(_) => Err(FrameError::TooLong(length)),
    }
}

/// Cuts a stream of bytes into pieces of frames. Stores at most a length.
#[derive(Debug)]
pub struct FrameCutter(Position);

/// Where in a frame the next byte belongs.
#[derive(Debug, Clone, Copy)]
enum Position {
    Length { came: [u8; LENGTH_SIZE], count: usize },
    MessageType { length: usize },
    Body { left: usize },
}

/// The result of [`FrameCutter::cut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut<'a> {
    /// How many bytes it took.
    pub taken: usize,
    /// What they are; `None` if the length isn't complete.
    pub piece: Option<Piece<'a>>,
}

/// A piece of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The beginning of a frame.
    Start {
        /// Its type.
        kind: MessageType,
        /// How many bytes follow the type.
        size: usize,
    },
    /// Bytes that follow the type.
    Part(&'a [u8]),
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { kind, size } => write!(f, "Start({})", Summary::new(*kind, *size)),
            Self::Part(part) => write!(f, "Part({} bytes)", part.len()),
        }
    }
}

impl Default for FrameCutter {
    fn default() -> Self {
        Self(Position::BETWEEN)
    }
}

impl Position {
    const BETWEEN: Self = Self::Length { came: [0; LENGTH_SIZE], count: 0 };

    const fn body(left: usize) -> Self {
        if left == 0 { Self::BETWEEN } else { Self::Body { left } }
    }
}

impl FrameCutter {
    /// Whether the last frame is complete and the next one hasn't begun.
    pub const fn is_between_frames(&self) -> bool {
        matches!(self.0, Position::Length { count: 0, .. })
    }

    /// Takes the next piece. After an error the stream can't be cut any more.
    pub fn cut<'a>(&mut self, mut input: &'a [u8]) -> Result<Cut<'a>, FrameError> {
        let whole = input.len();
        loop {
            let Some((&first, rest)) = input.split_first() else {
                return Ok(Cut { taken: whole, piece: None });
            };
            match &mut self.0 {
                Position::Length { came, count } => {
                    if let Some(byte) = came.get_mut(*count) {
                        *byte = first;
                    }
                    *count += 1;
                    if *count == LENGTH_SIZE {
                        self.0 =
                            Position::MessageType { length: check(u32::from_be_bytes(*came))? };
                    }
                    input = rest;
                }
                Position::MessageType { length } => {
                    let size = *length - 1;
                    self.0 = Position::body(size);
                    let piece = Some(Piece::Start { kind: MessageType(first), size });
                    return Ok(Cut { taken: whole - rest.len(), piece });
                }
                Position::Body { left } => {
                    let part = input.get(..*left).unwrap_or(input);
                    self.0 = Position::body(*left - part.len());
                    return Ok(Cut { taken: part.len(), piece: Some(Piece::Part(part)) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_a_length_a_type_and_a_body() {
        let frame = Frame::new(MessageType::SIGN_RESPONSE, b"abc").unwrap();
        let bytes = frame.encode();
        assert_eq!(bytes, b"\0\0\0\x04\x0eabc");
        assert_eq!(Frame::parse(&bytes), Ok(Some((frame, 8))));
        assert_eq!(Frame::parse(&[&bytes[..], b"next"].concat()), Ok(Some((frame, 8))));
        for part in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..part]), Ok(None), "{part}");
        }
    }

    #[test]
    fn debug_shows_no_content() {
        let frame = Frame::new(MessageType::LOCK, b"hunter2").unwrap();
        assert_eq!(format!("{frame:?}"), "Frame(LOCK (7 bytes))");
        assert_eq!(format!("{:?}", Piece::Part(b"hunter2")), "Part(7 bytes)");
        let start = Piece::Start { kind: MessageType::UNLOCK, size: 7 };
        assert_eq!(format!("{start:?}"), "Start(UNLOCK (7 bytes))");
    }

    #[test]
    fn the_cap_is_on_the_length() {
        let body = vec![0; MAX_FRAME];
        let most = Frame::new(MessageType::FAILURE, &body[1..]).unwrap().encode();
        assert_eq!(most.len(), MAX_FRAME + 4);
        assert!(Frame::parse(&most).unwrap().is_some());
        let over = FrameError::TooLong(0x0004_0001);
        assert_eq!(Frame::new(MessageType::FAILURE, &body), Err(over));
        assert_eq!(Frame::parse(b"\0\x04\0\x01"), Err(over));
        assert_eq!(Frame::parse(b"\xff\xff\xff\xff"), Err(FrameError::TooLong(u32::MAX)));
        assert_eq!(Frame::parse(b"\0\0\0\0"), Err(FrameError::Empty));
        assert_eq!(over.to_string(), "expected a frame of at most 262144 bytes, got one of 262145");
    }

    #[test]
    fn a_stream_is_cut_where_its_frames_begin_however_it_arrives() {
        let stream = b"\0\0\0\x01\x0b\0\0\0\x04\x0dabc\0\0\0\x01\x06";
        for piece in 1..=stream.len() {
            let mut cutter = FrameCutter::default();
            let mut starts = Vec::new();
            let mut bodies = Vec::new();
            for mut rest in stream.chunks(piece) {
                while !rest.is_empty() {
                    let Cut { taken, piece } = cutter.cut(rest).unwrap();
                    assert!(taken > 0);
                    match piece {
                        Some(Piece::Start { kind, size }) => starts.push((kind, size)),
                        Some(Piece::Part(part)) => bodies.extend_from_slice(part),
                        None => assert_eq!(taken, rest.len()),
                    }
                    rest = &rest[taken..];
                }
            }
            let expected = [
                (MessageType::REQUEST_IDENTITIES, 0),
                (MessageType::SIGN_REQUEST, 3),
                (MessageType::SUCCESS, 0),
            ];
            assert_eq!(starts, expected, "{piece}");
            assert_eq!(bodies, b"abc", "{piece}");
            assert!(cutter.is_between_frames());
        }
    }

    #[test]
    fn a_stream_without_frames_is_an_error_at_its_length() {
        for (bytes, error) in [
            (b"\0\0\0\0", FrameError::Empty),
            (b"\0\x04\0\x01", FrameError::TooLong(0x0004_0001)),
            (b"HTTP", FrameError::TooLong(0x4854_5450)),
        ] {
            let mut cutter = FrameCutter::default();
            assert_eq!(cutter.cut(&bytes[..3]).unwrap().piece, None);
            assert!(!cutter.is_between_frames());
            assert_eq!(cutter.cut(&bytes[3..]), Err(error));
        }
    }
}
