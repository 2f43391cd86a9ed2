//! Lines of an agent.

use super::{ErrorCode, content};

/// A line of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseLine {
    /// `OK`: the greeting, or a command succeeded.
    Ok,
    /// `ERR`: a command failed, with its code if it has a valid one.
    Err(Option<ErrorCode>),
    /// `S`: a status line.
    Status,
    /// `D`: data.
    Data,
    /// `INQUIRE`: the agent waits for data of the client.
    Inquire,
    /// `END`.
    End,
    /// A line that begins with `#`.
    Comment,
    /// An empty line.
    Blank,
}

/// A line that isn't Assuan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected OK, ERR, S, D, INQUIRE, END or a comment, got another line of {size} bytes")]
pub struct NotAResponse {
    /// How long the line is, without its line end.
    pub size: usize,
}

impl ResponseLine {
    /// Reads a line, with or without its line end.
    pub fn parse(line: &[u8]) -> Result<Self, NotAResponse> {
        let line = content(line);
        if line.starts_with(b"D ") {
            return Ok(Self::Data);
        }
        let not_a_response = NotAResponse { size: line.len() };
        if line.contains(&0) {
            return Err(not_a_response);
        }
        let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        match word {
            b"OK" => Ok(Self::Ok),
            b"ERR" => Ok(Self::Err(ErrorCode::parse(rest))),
            b"S" => Ok(Self::Status),
            b"INQUIRE" => Ok(Self::Inquire),
            b"END" => Ok(Self::End),
            b"" if rest.is_empty() => Ok(Self::Blank),
            [b'#', ..] => Ok(Self::Comment),
            _ => Err(not_a_response),
        }
    }

    /// Whether it is the client's turn: a command has ended, or an inquiry has begun.
    pub const fn is_complete(&self) -> bool {
        match self {
            Self::Ok | Self::Err(_) | Self::Inquire => true,
            Self::Status | Self::Data | Self::End | Self::Comment | Self::Blank => false,
        }
    }

    /// Whether the line may come at any time.
    pub(crate) const fn is_ignored(self) -> bool {
        match self {
            Self::Comment | Self::Blank => true,
            Self::Ok | Self::Err(_) | Self::Status | Self::Data | Self::Inquire | Self::End => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_known() {
        for (line, kind) in [
            (&b"OK\n"[..], ResponseLine::Ok),
            (b"OK Pleased to meet you\r\n", ResponseLine::Ok),
            (
                b"ERR 67109115 Forbidden <GPG Agent>\n",
                ResponseLine::Err(Some(ErrorCode::FORBIDDEN)),
            ),
            (b"ERR\n", ResponseLine::Err(None)),
            (b"S PROGRESS x\n", ResponseLine::Status),
            (b"D \0\xff%0A\n", ResponseLine::Data),
            (b"INQUIRE CIPHERTEXT\n", ResponseLine::Inquire),
            (b"END\n", ResponseLine::End),
            (b"#comment\n", ResponseLine::Comment),
            (b"# comment\n", ResponseLine::Comment),
            (b"\n", ResponseLine::Blank),
        ] {
            assert_eq!(ResponseLine::parse(line), Ok(kind), "{line:?}");
        }
    }

    #[test]
    fn other_lines_are_refused_with_their_size() {
        for line in
            [&b"HTTP/1.1 200 OK\n"[..], b"ok\n", b"OKAY\n", b" OK\n", b"D\n", b"OK\0\n", b"SX\n"]
        {
            let size = content(line).len();
            assert_eq!(ResponseLine::parse(line), Err(NotAResponse { size }), "{line:?}");
        }
    }
}
