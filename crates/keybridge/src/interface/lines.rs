//! Lines of JSON-RPC, of bounded length.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest line: a block of 12 MiB in which every byte takes two.
pub const MAX_LINE: usize = 24 * 1024 * 1024;

/// A line of the input.
pub(crate) enum Line {
    /// A whole line, without its LF.
    Whole(Vec<u8>),
    /// A line over [`MAX_LINE`], which was dropped.
    TooLong,
}

/// Splits the input into lines of bounded length.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// The beginning of the next line; kept here so that `next` is safe to cancel.
    line: Vec<u8>,
    too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            line: Vec::new(),
            too_long: false,
        }
    }

    /// The next line, without its LF, which the last line may lack. Safe to cancel.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let bytes = self.reader.fill_buf().await?;
            if bytes.is_empty() {
                let is_rest = self.too_long || !self.line.is_empty();
                return Ok(is_rest.then(|| self.take()));
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            if self.line.len() + part.len() > MAX_LINE {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let count = part.len() + usize::from(end.is_some());
            self.reader.consume(count);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) { Line::TooLong } else { Line::Whole(line) }
    }
}
