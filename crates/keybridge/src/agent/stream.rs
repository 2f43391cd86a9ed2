//! A connected socket of an agent, local or TCP.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use keybridge_link::{Duplex, LocalSocket, is_transient};
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

impl Duplex for AgentStream {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Local(socket) => socket.poll_ready(wants, context),
            Self::Tcp(stream) => stream.poll_ready(wants, context),
        }
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(socket) => socket.try_read(buffer),
            Self::Tcp(stream) => Duplex::try_read(stream, buffer),
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(socket) => socket.try_write(bytes),
            Self::Tcp(stream) => Duplex::try_write(stream, bytes),
        }
    }

    fn end_output(&mut self) -> io::Result<()> {
        match self {
            Self::Local(socket) => socket.end_output(),
            Self::Tcp(stream) => stream.end_output(),
        }
    }
}

impl AgentStream {
    /// Reads something; 0 at the end.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            poll_fn(|context| self.poll_ready(Some(Interest::READABLE), context)).await?;
            match self.try_read(buffer) {
                Err(error) if is_transient(&error) => {}
                result => return result,
            }
        }
    }

    /// Reads `count` bytes.
    pub(crate) async fn read_exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(bytes)
    }

    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            poll_fn(|context| self.poll_ready(Some(Interest::WRITABLE), context)).await?;
            match self.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
