//! A connected socket of an agent, local or TCP.

use std::io;
use std::task::{Context, Poll};

use keybridge_link::{Duplex, LocalSocket};
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
