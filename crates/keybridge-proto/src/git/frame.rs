//! The messages of the git lane: a request and an answer, a frame each.
//!
//! ```text
//!  0        4                  8           8 + header
//!  ├ length ┼ length of header ┼ header ───┼ the object, or the signature ┤
//! ```
//!
//! Both lengths are big-endian; the first one counts what comes after it. The header is JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::printable::printable_up_to;

/// The longest frame. A commit takes a few hundred bytes, and one with a long message some thousands.
pub const MAX_FRAME: usize = 1024 * 1024;

/// The longest name of a key. A public key of ssh's with a certificate takes a few thousand bytes.
pub const MAX_KEY: usize = 64 * 1024;

/// What is before the header.
const LENGTHS: usize = 8;

/// How much of a reason is kept: a line of a terminal or two.
const REASON: usize = 300;

/// Of what kind a signature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// As gpg makes it.
    Openpgp,
    /// As ssh-keygen makes it.
    Ssh,
}

/// Git in a target wants an object to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The kind of signature.
    pub format: Format,
    /// The key as git named it; of an ssh key the public key itself.
    pub key: Vec<u8>,
    /// The object without a signature.
    pub object: Vec<u8>,
}

/// What the host says to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The signature, in its armour.
    Signed {
        /// The lines that gpg writes for git about it. ssh-keygen writes none.
        status: String,
        /// The signature.
        signature: Vec<u8>,
    },
    /// No key of that name is lent, so another program may have it.
    NotLent(String),
    /// It is not to be signed, or a person said no.
    Refused(String),
    /// It could not be signed.
    Failed(String),
    /// As many clients as there may be are connected: try again.
    Busy,
}

/// A frame that isn't what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFrame {
    /// Longer than [`MAX_FRAME`].
    #[error("expected at most {MAX_FRAME} bytes, got {0}")]
    TooLong(usize),
    /// The name of a key that is longer than [`MAX_KEY`].
    #[error("expected a key of at most {MAX_KEY} bytes, got {0}")]
    LongKey(usize),
    /// The lengths, or the header.
    #[error("expected a frame of the git lane, got other bytes")]
    Malformed,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestHeader {
    format: Format,
    /// In base64: git's user names are of any encoding.
    key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerHeader {
    outcome: Outcome,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Signed,
    NotLent,
    Refused,
    Failed,
    Busy,
}

/// The size of the frame that begins with these bytes, once it is known.
pub fn frame_size(beginning: &[u8]) -> Result<Option<usize>, BadFrame> {
    let Some(length) = beginning.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let size = length.saturating_add(4);
    match size {
        ..LENGTHS => Err(BadFrame::Malformed),
        LENGTHS..=MAX_FRAME => Ok(Some(size)),
        _ => Err(BadFrame::TooLong(size)),
    }
}

impl Request {
    /// The frame.
    pub fn encode(&self) -> Result<Vec<u8>, BadFrame> {
        let key = STANDARD.encode(&self.key);
        encode(&RequestHeader { format: self.format, key }, &self.object)
    }

    /// Reads a whole frame.
    pub fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let (header, object) = split(frame)?;
        let RequestHeader { format, key } = parse(header)?;
        let key = STANDARD.decode(key).map_err(|_| BadFrame::Malformed)?;
        if key.len() > MAX_KEY {
            return Err(BadFrame::LongKey(key.len()));
        }
        Ok(Self { format, key, object: object.to_vec() })
    }
}

impl Answer {
    /// What kind of answer it is, for a log.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Signed { .. } => "signed",
            Self::NotLent(_) => "not lent",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Busy => "busy",
        }
    }

    /// The frame.
    pub fn encode(&self) -> Result<Vec<u8>, BadFrame> {
        let (outcome, text, signature) = match self {
            Self::Signed { status, signature } => {
                (Outcome::Signed, status.as_str(), signature.as_slice())
            }
            Self::NotLent(reason) => (Outcome::NotLent, reason.as_str(), &[][..]),
            Self::Refused(reason) => (Outcome::Refused, reason.as_str(), &[][..]),
            Self::Failed(reason) => (Outcome::Failed, reason.as_str(), &[][..]),
            Self::Busy => (Outcome::Busy, "", &[][..]),
        };
        encode(&AnswerHeader { outcome, text: text.to_owned() }, signature)
    }

    /// Reads a whole frame.
    pub fn decode(frame: &[u8]) -> Result<Self, BadFrame> {
        let (header, signature) = split(frame)?;
        let AnswerHeader { outcome, text } = parse(header)?;
        let reason = || printable_up_to(&text, REASON);
        Ok(match outcome {
            Outcome::Signed => Self::Signed { status: text.clone(), signature: signature.to_vec() },
            Outcome::NotLent => Self::NotLent(reason()),
            Outcome::Refused => Self::Refused(reason()),
            Outcome::Failed => Self::Failed(reason()),
            Outcome::Busy => Self::Busy,
        })
    }
}

fn encode(header: &impl Serialize, bytes: &[u8]) -> Result<Vec<u8>, BadFrame> {
    let header = serde_json::to_vec(header).map_err(|_| BadFrame::Malformed)?;
    let size = LENGTHS + header.len() + bytes.len();
    if size > MAX_FRAME {
        return Err(BadFrame::TooLong(size));
    }
    let length = |of: usize| u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes();
    Ok([&length(size - 4)[..], &length(header.len()), &header, bytes].concat())
}

/// The header and what follows it.
fn split(frame: &[u8]) -> Result<(&[u8], &[u8]), BadFrame> {
    if frame_size(frame)? != Some(frame.len()) {
        return Err(BadFrame::Malformed);
    }
    let (lengths, rest) = frame.split_first_chunk::<LENGTHS>().ok_or(BadFrame::Malformed)?;
    let [.., a, b, c, d] = *lengths;
    let header = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    rest.split_at_checked(header).ok_or(BadFrame::Malformed)
}

fn parse<T: for<'a> Deserialize<'a>>(header: &[u8]) -> Result<T, BadFrame> {
    serde_json::from_slice(header).map_err(|_| BadFrame::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request { format: Format::Openpgp, key: b"J\xfc <j@x>".into(), object: b"tree".into() }
    }

    #[test]
    fn requests_and_answers_round_trip() {
        let request = request();
        assert_eq!(Request::decode(&request.encode().unwrap()), Ok(request));
        let signed = Answer::Signed { status: "[GNUPG:] x\n".into(), signature: b"sig\n".into() };
        for answer in [
            signed,
            Answer::NotLent("a".into()),
            Answer::Refused("b".into()),
            Answer::Failed(String::new()),
            Answer::Busy,
        ] {
            assert_eq!(Answer::decode(&answer.encode().unwrap()), Ok(answer));
        }
    }

    #[test]
    fn a_frame_is_bounded_both_ways() {
        let mut large = request();
        large.object = vec![b'x'; MAX_FRAME - request().encode().unwrap().len() + 4];
        assert_eq!(large.encode().unwrap().len(), MAX_FRAME);
        assert_eq!(Request::decode(&large.encode().unwrap()), Ok(large.clone()));
        large.object.push(b'x');
        assert_eq!(large.encode(), Err(BadFrame::TooLong(MAX_FRAME + 1)));
        assert_eq!(frame_size(&[0, 0x10, 0, 0]), Err(BadFrame::TooLong(MAX_FRAME + 4)));
        assert_eq!(frame_size(&[0, 0x0f, 0xff, 0xfc]), Ok(Some(MAX_FRAME)));
        assert_eq!(frame_size(&[0xff; 4]), Err(BadFrame::TooLong(0xffff_ffff + 4)));
        assert_eq!(frame_size(&[0, 0, 0, 3]), Err(BadFrame::Malformed));
        assert_eq!(frame_size(&[0, 0, 0]), Ok(None));
    }

    #[test]
    fn a_key_that_no_program_names_is_not_taken() {
        let with_key = |size| Request { key: vec![b'\n'; size], ..request() };
        let longest = with_key(MAX_KEY);
        assert_eq!(Request::decode(&longest.encode().unwrap()), Ok(longest));
        let longer = with_key(MAX_KEY + 1).encode().unwrap();
        assert_eq!(Request::decode(&longer), Err(BadFrame::LongKey(MAX_KEY + 1)));
    }

    #[test]
    fn a_frame_that_is_cut_or_has_more_is_malformed() {
        let frame = request().encode().unwrap();
        for cut in 0..frame.len() {
            assert_eq!(Request::decode(&frame[..cut]), Err(BadFrame::Malformed), "{cut}");
        }
        assert_eq!(Request::decode(&[&frame[..], b"x"].concat()), Err(BadFrame::Malformed));
        // An answer is no request, and a header ends within its frame.
        let answer = Answer::Failed("x".into()).encode().unwrap();
        assert_eq!(Request::decode(&answer), Err(BadFrame::Malformed));
        assert_eq!(Request::decode(b"\0\0\0\x04\0\0\0\x01"), Err(BadFrame::Malformed));
        assert_eq!(Request::decode(b"\0\0\0\x06\0\0\0\x02{}"), Err(BadFrame::Malformed));
    }

    #[test]
    fn a_reason_can_be_shown_and_has_an_end() {
        let hostile = Answer::Refused(format!("\x1b[2J{}", "x".repeat(2000)));
        let Ok(Answer::Refused(shown)) = Answer::decode(&hostile.encode().unwrap()) else {
            panic!("another answer");
        };
        assert!(!shown.contains('\x1b') && shown.len() < 400, "{shown}");
    }
}
