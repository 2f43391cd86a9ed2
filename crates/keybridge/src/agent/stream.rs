//! A connected socket of an agent, local or TCP.

use std::io;

use keybridge_link::{LocalSocket, is_transient};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connected socket. Dropping it closes the connection, which also closes an open pinentry.
#[derive(Debug)]
pub enum AgentStream {
    /// A Unix socket, or a named pipe.
    Local(LocalSocket),
    /// A TCP port on 127.0.0.1.
    Tcp(TcpStream),
}

impl AgentStream {
    /// Reads without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }
    }

    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until the socket is ready for this kind of operation.
    pub async fn ready(&mut self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.ready(interest).await,
            Self::Tcp(stream) => stream.ready(interest).await.map(drop),
        }
    }

    /// Writes all of `bytes`.
    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.ready(Interest::WRITABLE).await?;
            match self.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads `count` bytes.
    pub(super) async fn read_exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            self.ready(Interest::READABLE).await?;
            match self.try_read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}
