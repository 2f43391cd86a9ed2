//! The words of the two lanes, as far as client and stand-in need them.

use serde::{Deserialize, Serialize};

/// Which agent's protocol a socket speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lane {
    Gpg,
    Ssh,
}

/// Every lane that is measured, if the program offers it.
pub(crate) const LANES: [Lane; 2] = [Lane::Gpg, Lane::Ssh];

/// The longest `D` line: 1000 bytes and its end.
const DATA_LINE: usize = 1001;

/// How many `D` lines are written at once: as many as a Unix socket takes without waiting.
const LINES_AT_ONCE: usize = 64;

/// What one ssh message carries: below the 256 KiB that OpenSSH takes.
const MESSAGE: usize = 250 * 1024;

/// Types of ssh-agent messages.
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// The flags of a signature request that the stand-in answers with a long signature.
const LONG_ANSWER: u32 = 0x4b42;

impl Lane {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gpg => "gpg",
            Self::Ssh => "ssh",
        }
    }

    /// A request that costs the agent next to nothing.
    pub(crate) fn small_request(self) -> Vec<u8> {
        match self {
            Self::Gpg => b"NOP\n".to_vec(),
            Self::Ssh => message(&[REQUEST_IDENTITIES]),
        }
    }

    /// How long the answer is that these bytes begin with, once all of it is there.
    pub(crate) fn whole_answer(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Gpg => bytes.iter().position(|&byte| byte == b'\n').map(|end| end + 1),
            Self::Ssh => {
                let length = bytes.first_chunk::<4>()?;
                let whole = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(4)?;
                (bytes.len() >= whole).then_some(whole)
            }
        }
    }

    /// Whether a whole answer is a good one.
    pub(crate) fn is_good(self, answer: &[u8]) -> bool {
        match self {
            Self::Gpg => answer.starts_with(b"OK"),
            Self::Ssh => matches!(answer.get(4), Some(&IDENTITIES_ANSWER | &SIGN_RESPONSE)),
        }
    }
}

/// `D` lines, together as long as one write should be.
pub(crate) fn data_lines() -> Vec<u8> {
    let mut line = b"D ".to_vec();
    line.resize(DATA_LINE - 1, b'x');
    line.push(b'\n');
    line.repeat(LINES_AT_ONCE)
}

/// A signature request of an ssh client whose data is long, or whose answer is to be.
pub(crate) fn bulk_request(answer_is_long: bool) -> Vec<u8> {
    let (data, flags) = if answer_is_long { (16, LONG_ANSWER) } else { (MESSAGE, 0) };
    let mut body = vec![SIGN_REQUEST];
    put_string(&mut body, b"key");
    put_string(&mut body, &vec![b'x'; data]);
    body.extend(flags.to_be_bytes());
    message(&body)
}

/// What a stand-in for ssh-agent answers to the body of a request.
pub(crate) fn ssh_answer(request: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    match request.first() {
        Some(&REQUEST_IDENTITIES) => body.extend([IDENTITIES_ANSWER, 0, 0, 0, 0]),
        Some(&SIGN_REQUEST) => {
            let is_long = request.ends_with(&LONG_ANSWER.to_be_bytes());
            body.push(SIGN_RESPONSE);
            put_string(&mut body, &vec![b's'; if is_long { MESSAGE } else { 64 }]);
        }
        Some(_) | None => body.push(5),
    }
    message(&body)
}

fn message(body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(body.len() + 4);
    put_string(&mut message, body);
    message
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}
