//! A connected socket of an agent, of whichever kind.

use std::io;

use tokio::io::Interest;
use tokio::net::TcpStream;

#[cfg(unix)]
use keybridge_link::UnixSocket;

/// A connected socket. Dropping it closes the connection, and a pinentry behind it goes away.
#[derive(Debug)]
pub enum AgentStream {
    /// A Unix socket.
    #[cfg(unix)]
    Unix(UnixSocket),
    /// A TCP port on 127.0.0.1.
    Tcp(TcpStream),
}

impl AgentStream {
    /// Reads without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }
    }

    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until a read or a write of the kind asked for may do something.
    pub async fn ready(&mut self, interest: Interest) -> io::Result<()> {
        match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.ready(interest).await,
            Self::Tcp(stream) => stream.ready(interest).await.map(drop),
        }
    }
}
