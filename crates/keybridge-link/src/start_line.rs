//! Waits for the helper's start line.

use std::io;

use keybridge_proto::mux::{Cookie, LinkError, START_LINE_TIME, StartScanner};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Why the start line didn't come.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The output ended first.
    #[error("expected the helper's start line, got the end of its output")]
    Eof,
    /// It took too long.
    #[error("expected the helper's start line within {} s, got none", START_LINE_TIME.as_secs())]
    Timeout,
    /// Too much came before it.
    #[error(transparent)]
    Scan(#[from] LinkError),
    /// Reading failed.
    #[error("reading the helper's output: {0}")]
    Io(#[from] io::Error),
}

/// Skips everything up to the helper's start line. Returns what was read after it.
pub async fn await_start(
    reader: &mut (impl AsyncRead + Unpin),
    cookie: &Cookie,
) -> Result<Vec<u8>, StartError> {
    let scan = async {
        let mut scanner = StartScanner::new(cookie);
        let mut buffer = vec![0; 4096];
        loop {
            let count = reader.read(&mut buffer).await?;
            if count == 0 {
                return Err(StartError::Eof);
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            if let Some(end) = scanner.feed(bytes)? {
                return Ok(bytes.get(end..).unwrap_or_default().to_vec());
            }
        }
    };
    tokio::time::timeout(START_LINE_TIME, scan).await.unwrap_or(Err(StartError::Timeout))
}
