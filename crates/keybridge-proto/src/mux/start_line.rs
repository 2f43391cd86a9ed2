//! The line that marks where the helper's output begins, after banners and the output of shell profiles.

use std::time::Duration;

use super::LinkError;
use crate::Secret;

/// How much may come before the start line: far more than any banner.
pub const START_LINE_LIMIT: usize = 64 * 1024;

/// How long the start line may take; a slow login shell needs seconds, not more.
pub const START_LINE_TIME: Duration = Duration::from_secs(10);

const COOKIE_BYTES: usize = 16;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Random bytes in the start line, so that no banner can contain it by chance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie(Secret<[u8; COOKIE_BYTES]>);

impl Cookie {
    /// A cookie of random bytes, which the caller provides.
    pub const fn new(random: [u8; COOKIE_BYTES]) -> Self {
        Self(Secret::new(random))
    }

    /// Parses 32 hexadecimal digits of either case.
    pub fn from_hex(hex: &str) -> Result<Self, LinkError> {
        let bad = LinkError::BadCookie { came: hex.len() };
        if hex.len() != 2 * COOKIE_BYTES {
            return Err(bad);
        }
        let mut bytes = [0; COOKIE_BYTES];
        for (position, digit) in hex.bytes().enumerate() {
            let Some(value) =
                char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
            else {
                return Err(bad);
            };
            if let Some(byte) = bytes.get_mut(position / 2) {
                *byte = *byte << 4 | value;
            }
        }
        Ok(Self::new(bytes))
    }

    /// The cookie as 32 hexadecimal digits in lower case.
    pub fn hex(&self) -> String {
        self.0
            .expose()
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| DIGITS.get(usize::from(digit)).copied().map(char::from))
            .collect()
    }

    /// The start line that the helper writes. It begins with a newline, since a banner may not end
    /// with one.
    pub fn start_line(&self) -> Vec<u8> {
        format!("\nKEYBRIDGE 2 {}\n", self.hex()).into_bytes()
    }
}

/// Finds the start line in a stream of bytes, and stores none of them.
#[derive(Debug)]
pub struct StartScanner {
    line: Secret<Vec<u8>>,
    /// How many bytes of the line the last input ended with.
    matched: usize,
    seen: usize,
}

impl StartScanner {
    /// A scanner for the start line with this cookie.
    pub fn new(cookie: &Cookie) -> Self {
        Self { line: Secret::new(cookie.start_line()), matched: 0, seen: 0 }
    }

    /// Scans the next input. Returns where in it the link's first frame begins, or `None` if the
    /// start line isn't complete yet. After that it returns 0.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<usize>, LinkError> {
        let line = self.line.expose();
        if self.matched == line.len() {
            return Ok(Some(0));
        }
        for (position, &byte) in input.iter().enumerate() {
            // The line's first byte occurs again only at its end, so after a mismatch a match can
            // only begin with this byte.
            self.matched = if line.get(self.matched) == Some(&byte) {
                self.matched + 1
            } else {
                usize::from(line.first() == Some(&byte))
            };
            self.seen = self.seen.saturating_add(1);
            if self.matched == line.len() {
                return Ok(Some(position + 1));
            }
            if self.seen - self.matched > START_LINE_LIMIT {
                return Err(LinkError::StartLineMissing { limit: START_LINE_LIMIT });
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_32_digits() {
        let cookie =
            Cookie::new(*b"\x00\x01\x23\x45\x67\x89\xab\xcd\xef\xff\x10\x32\x54\x76\x98\xba");
        assert_eq!(cookie.hex(), "000123456789abcdefff1032547698ba");
        assert_eq!(Cookie::from_hex("000123456789ABCDEFFF1032547698BA"), Ok(cookie.clone()));
        assert_eq!(cookie.start_line(), b"\nKEYBRIDGE 2 000123456789abcdefff1032547698ba\n");
        assert_eq!(format!("{cookie:?}"), "Cookie(Secret(16 bytes))");
        for bad in ["", "00", "000123456789abcdefff1032547698b", "000123456789abcdefff1032547698bg"]
        {
            assert_eq!(Cookie::from_hex(bad), Err(LinkError::BadCookie { came: bad.len() }));
        }
    }
}
