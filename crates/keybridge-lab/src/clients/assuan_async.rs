//! Clients that speak Assuan by hand, while everything else in the test goes on.

use std::io::ErrorKind;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::until;

/// Connects. A socket is at its path a moment before it listens: that long it may refuse.
pub async fn dial(path: &Path) -> UnixStream {
    let mut dialled = None;
    until("a socket that listens", || {
        let tried = std::os::unix::net::UnixStream::connect(path);
        let refused = tried.as_ref().is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused);
        dialled = Some(tried);
        !refused
    })
    .await;
    let stream = dialled.unwrap().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    stream.set_nonblocking(true).unwrap();
    UnixStream::from_std(stream).unwrap()
}

/// A client that speaks Assuan line by line.
pub struct AsyncClient {
    reader: BufReader<tokio::net::unix::OwnedReadHalf>,
    /// What goes to the agent.
    pub writer: tokio::net::unix::OwnedWriteHalf,
}

impl AsyncClient {
    /// Connects, and reads nothing.
    pub async fn connect(path: &Path) -> Self {
        let (reader, writer) = dial(path).await.into_split();
        Self { reader: BufReader::new(reader), writer }
    }

    /// Connects and returns everything that it receives.
    pub async fn turned_away(path: &Path) -> String {
        let mut client = Self::connect(path).await;
        let line = client.line().await;
        assert_eq!(client.line().await, "", "after {line}");
        line
    }

    /// Connects and takes the greeting.
    pub async fn greeted(path: &Path) -> Self {
        let mut client = Self::connect(path).await;
        let greeting = client.line().await;
        assert!(greeting.starts_with("OK"), "{greeting}");
        client
    }

    /// The next line; empty at the end.
    pub async fn line(&mut self) -> String {
        let mut line = Vec::new();
        // A reset after the last line is an end like any other.
        let _ = self.reader.read_until(b'\n', &mut line).await;
        String::from_utf8(line).unwrap()
    }

    /// Sends text as it is.
    pub async fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a command and gives the lines up to OK, ERR or INQUIRE.
    pub async fn ask(&mut self, command: &str) -> Vec<String> {
        self.send(&format!("{command}\n")).await;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            let complete = ["OK", "ERR", "INQUIRE"].iter().any(|word| line.starts_with(word));
            let end = line.is_empty();
            lines.push(line);
            if complete || end {
                return lines;
            }
        }
    }
}
