//! Clients of ssh-agent's protocol.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::dial;

/// Asks for the keys.
const LIST: [u8; 5] = [0, 0, 0, 1, 11];

/// A failure, as an agent sends it.
pub const FAILURE: [u8; 5] = [0, 0, 0, 1, 5];

/// A success, as an agent sends it.
pub const SUCCESS: [u8; 5] = [0, 0, 0, 1, 6];

/// The answer of an agent that has no keys.
pub const NO_KEYS: [u8; 9] = [0, 0, 0, 5, 12, 0, 0, 0, 0];

/// A client that speaks ssh-agent's protocol byte by byte.
pub struct SshClient(
    /// The connection.
    pub UnixStream,
);

impl SshClient {
    /// Connects.
    pub async fn connect(path: &Path) -> Self {
        Self(dial(path).await)
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next frame; empty at the end.
    pub async fn answer(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        if self.0.read_exact(&mut frame).await.is_err() {
            return Vec::new();
        }
        let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        frame.resize(4 + usize::try_from(length).unwrap(), 0);
        self.0.read_exact(&mut frame[4..]).await.unwrap();
        frame
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.send(request).await;
        self.answer().await
    }

    /// Asks for the keys, and expects the failure.
    pub async fn is_refused(&mut self) {
        assert_eq!(self.ask(&LIST).await, FAILURE);
    }
}
