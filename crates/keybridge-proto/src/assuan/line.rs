//! Cuts a stream of bytes into lines of bounded length.

use std::fmt;

use memchr::memchr;

/// The longest line, its LF included. gpg-agent accepts 1001 bytes before the LF and resets the
/// connection at 1002.
pub const MAX_LINE: usize = 1002;

/// Cuts a stream of bytes into lines. A line that is complete in the input is borrowed from it. Only an
/// incomplete one is stored, so memory is bounded by [`MAX_LINE`].
#[derive(Default)]
pub struct LineBuffer {
    carry: Vec<u8>,
    /// The line in `carry` was returned by the last call and is to be dropped.
    given_out: bool,
}

// A line may hold a secret.
impl fmt::Debug for LineBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LineBuffer({} bytes)", self.carry.len())
    }
}

/// The result of [`LineBuffer::cut`].
#[derive(Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// How many bytes of the input were taken.
    pub taken: usize,
    /// The next line with its line end, or `None` if the input ended before it did.
    pub line: Option<&'a [u8]>,
}

/// A line that is longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a line of at most {max} bytes, got a longer one", max = MAX_LINE)]
pub struct LineTooLong;

impl LineBuffer {
    /// Whether a line has begun and not ended.
    pub(crate) const fn is_in_line(&self) -> bool {
        !self.carry.is_empty() && !self.given_out
    }

    /// Takes bytes up to the end of the next line.
    pub fn cut<'a>(&'a mut self, input: &'a [u8]) -> Result<Cut<'a>, LineTooLong> {
        if self.given_out {
            self.carry.clear();
            self.given_out = false;
        }
        let room = MAX_LINE - self.carry.len();
        let reach = input.get(..room).unwrap_or(input);
        let Some(end) = memchr(b'\n', reach) else {
            if reach.len() == room {
                return Err(LineTooLong);
            }
            self.carry.extend_from_slice(input);
            return Ok(Cut { taken: input.len(), line: None });
        };
        let (head, _) = reach.split_at(end + 1);
        if self.carry.is_empty() {
            return Ok(Cut { taken: head.len(), line: Some(head) });
        }
        self.carry.extend_from_slice(head);
        self.given_out = true;
        Ok(Cut { taken: head.len(), line: Some(&self.carry) })
    }
}

/// A line without its LF or CRLF.
pub fn content(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], chunk: usize) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for mut part in input.chunks(chunk) {
            while !part.is_empty() {
                let cut = buffer.cut(part)?;
                lines.extend(cut.line.map(<[u8]>::to_vec));
                part = &part[cut.taken..];
            }
        }
        Ok(lines)
    }

    #[test]
    fn lines_are_the_same_however_they_are_split() {
        let input = b"NOP\nGETINFO version\r\n\n#c\n";
        for chunk in 1..=input.len() {
            let expected: [&[u8]; 4] = [b"NOP\n", b"GETINFO version\r\n", b"\n", b"#c\n"];
            assert_eq!(lines(input, chunk).unwrap(), expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn the_limit_is_1001_bytes_before_the_line_feed() {
        let mut good = vec![b'x'; 1001];
        good.push(b'\n');
        let mut bad = vec![b'x'; 1002];
        bad.push(b'\n');
        for chunk in [1, 7, 1000, 1001, 1002, 1003] {
            assert_eq!(lines(&good, chunk).unwrap(), [good.clone()]);
            assert_eq!(lines(&bad, chunk), Err(LineTooLong));
        }
    }

    #[test]
    fn a_line_that_never_ends_is_not_kept() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.cut(&vec![b'x'; 1 << 20]), Err(LineTooLong));
        assert_eq!(buffer.carry.capacity(), 0);
    }

    #[test]
    fn the_line_end_is_stripped_once() {
        assert_eq!(content(b"NOP\r\n"), b"NOP");
        assert_eq!(content(b"NOP\n"), b"NOP");
        assert_eq!(content(b"\r\r\n"), b"\r");
        assert_eq!(content(b"NOP"), b"NOP");
    }
}
