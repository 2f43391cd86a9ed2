//! A connected socket of an agent, of whichever kind.

use std::io;

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A connected socket. Dropping it closes the connection, and a pinentry behind it goes away.
#[derive(Debug)]
pub enum AgentStream {
    /// A Unix socket.
    #[cfg(unix)]
    Unix(UnixStream),
    /// A TCP port on 127.0.0.1.
    Tcp(TcpStream),
}

impl AgentStream {
    /// Reads without waiting.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tcp(stream) => stream.try_read(buffer),
        }?;
        if count < buffer.len() {
            self.is_drained();
        }
        Ok(count)
    }

    /// A short read has emptied the socket: another one waits for the kernel's word, and doesn't ask.
    fn is_drained(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_io(Interest::READABLE, nothing),
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, nothing),
        };
    }

    /// Writes without waiting.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until a read or a write of the kind asked for may do something.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            #[cfg(unix)]
            Self::Unix(stream) => stream.ready(interest).await,
            Self::Tcp(stream) => stream.ready(interest).await,
        }
    }
}
