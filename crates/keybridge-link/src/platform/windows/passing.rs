//! No client is passed to a program of Windows: no target shares its kernel.

use std::io;

use tokio::io::AsyncReadExt;

use super::LocalStream;
use crate::ReadOutcome;

/// There is no value of this type.
#[derive(Debug)]
pub enum PassingSocket {}

/// There is no value of this type.
#[derive(Debug)]
pub enum ClientStream {}

/// There is no value of this type.
#[derive(Debug)]
pub enum ClientSocket {}

/// Never called.
pub(crate) const fn write_with_passing(
    _: &LocalStream,
    _: &[u8],
    passing: &PassingSocket,
) -> usize {
    match *passing {}
}

/// Fills a buffer. Nothing comes with its bytes.
pub(crate) async fn read_with_passing(
    socket: &mut LocalStream,
    buffer: &mut [u8],
) -> io::Result<Option<PassingSocket>> {
    socket.read_exact(buffer).await?;
    Ok(None)
}

impl ClientSocket {
    /// Never called, like the others.
    pub const fn new(stream: ClientStream) -> io::Result<Self> {
        match stream {}
    }

    /// The client is gone both ways.
    pub const fn hung_up(&self) -> bool {
        match *self {}
    }

    /// Reads what is there.
    pub const fn read(&mut self, _: &mut [u8]) -> io::Result<ReadOutcome> {
        match *self {}
    }

    /// Writes what the socket takes.
    pub const fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    /// Waits until something is new.
    pub async fn changed(&mut self) -> io::Result<()> {
        match *self {}
    }

    /// Ends the connection.
    pub const fn shutdown(&self) -> io::Result<()> {
        match *self {}
    }
}
