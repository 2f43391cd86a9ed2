//! Error codes of libgpg-error, and the few replies that the bridge gives in the agent's place.

use std::fmt;

/// A code of libgpg-error: where it comes from, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode {
    /// The part of GnuPG that it comes from; gpg-agent is 4.
    pub source: u8,
    /// The meaning.
    pub code: u16,
}

impl ErrorCode {
    /// gpg-agent. gpg continues after `Forbidden` only if it comes from this source.
    const GPG_AGENT: u8 = 4;

    /// "Forbidden".
    pub const FORBIDDEN: Self = Self::of_agent(251);

    const fn of_agent(code: u16) -> Self {
        Self { source: Self::GPG_AGENT, code }
    }

    /// Whether a person has cancelled a dialog: "Operation cancelled", "Operation fully cancelled", and "Not
    /// confirmed" where the question was whether a key may be used. They may also come from the pinentry.
    pub const fn is_cancel(self) -> bool {
        matches!(self.code, 99 | 114 | 198)
    }

    /// The number in an ERR line: the source in bits 24 to 30, the code in the lower 16.
    pub const fn value(self) -> u32 {
        (self.source as u32) << 24 | self.code as u32
    }

    /// Parses the number of an ERR line. Other bits are ignored.
    pub const fn from_value(value: u32) -> Self {
        let [source, _, high, low] = value.to_be_bytes();
        Self { source: source & 0x7f, code: u16::from_be_bytes([high, low]) }
    }

    /// Parses what follows `ERR`: blanks, a number, and a text that is ignored.
    pub fn parse(rest: &[u8]) -> Option<Self> {
        let word = rest.split(|&byte| byte == b' ').find(|word| !word.is_empty())?;
        std::str::from_utf8(word).ok()?.parse().ok().map(Self::from_value)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (source {}, code {})", self.value(), self.source, self.code)
    }
}

/// A line that the bridge sends to a client in the agent's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The bridge itself grants the request.
    Ok,
    /// The gate denied the request.
    Forbidden,
    /// The key isn't lent, for a client that wants to use it.
    NoSecretKey,
    /// The key isn't lent, for a client that asks about it.
    NotFound,
    /// There are more keys than the client accepts.
    Truncated,
    /// The agent can't be reached, or went away.
    NoAgent,
    /// A person has cancelled the use of the key lately.
    Canceled,
    /// A person said no, or would have to be asked.
    NotConfirmed,
    /// There are too many sessions.
    LimitReached,
    /// The agent's answer isn't Assuan.
    InvalidResponse,
    /// The client sent a line over the limit.
    LineTooLong,
    /// The client sent an invalid line.
    Syntax,
}

impl Reply {
    /// The line, with its LF.
    pub const fn line(self) -> &'static [u8] {
        match self {
            Self::Ok => b"OK\n",
            Self::Forbidden => b"ERR 67109115 Forbidden <GPG Agent>\n",
            Self::NoSecretKey => b"ERR 67108881 No secret key <GPG Agent>\n",
            Self::NotFound => b"ERR 67108891 Not found <GPG Agent>\n",
            Self::Truncated => b"ERR 67108938 Operation truncated <GPG Agent>\n",
            Self::NoAgent => b"ERR 67108941 No agent running <GPG Agent>\n",
            Self::Canceled => b"ERR 67108963 Operation cancelled <GPG Agent>\n",
            Self::NotConfirmed => b"ERR 67108978 Not confirmed <GPG Agent>\n",
            Self::LimitReached => b"ERR 67109047 Limit reached <GPG Agent>\n",
            Self::InvalidResponse => b"ERR 67109124 Invalid IPC response <GPG Agent>\n",
            Self::LineTooLong => b"ERR 67109127 Line passed to IPC too long <GPG Agent>\n",
            Self::Syntax => b"ERR 67109140 IPC syntax error <GPG Agent>\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assuan::ResponseLine;

    #[test]
    fn a_code_is_source_and_number() {
        assert_eq!(ErrorCode::FORBIDDEN.value(), 67_109_115);
        assert_eq!(ErrorCode::of_agent(77).value(), 67_108_941);
        assert_eq!(ErrorCode::from_value(67_109_139), ErrorCode { source: 4, code: 275 });
        assert_eq!(ErrorCode::FORBIDDEN.to_string(), "67109115 (source 4, code 251)");
    }

    #[test]
    fn a_code_that_is_no_number_is_none() {
        for rest in [&b""[..], b" ", b" abc", b" -1", b" 99999999999", b" \xff"] {
            assert_eq!(ErrorCode::parse(rest), None, "{rest:?}");
        }
        assert_eq!(ErrorCode::parse(b"  67109115 x"), Some(ErrorCode::FORBIDDEN));
    }

    #[test]
    fn replies_carry_the_codes_they_name() {
        for (reply, code) in [
            (Reply::Forbidden, 251),
            (Reply::NoSecretKey, 17),
            (Reply::NotFound, 27),
            (Reply::Truncated, 74),
            (Reply::NoAgent, 77),
            (Reply::Canceled, 99),
            (Reply::NotConfirmed, 114),
            (Reply::LimitReached, 183),
            (Reply::InvalidResponse, 260),
            (Reply::LineTooLong, 263),
            (Reply::Syntax, 276),
        ] {
            let code = Some(ErrorCode::of_agent(code));
            assert_eq!(ResponseLine::parse(reply.line()), Ok(ResponseLine::Err(code)));
        }
        assert_eq!(ResponseLine::parse(Reply::Ok.line()), Ok(ResponseLine::Ok));
    }
}
