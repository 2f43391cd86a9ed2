//! A connected socket of an agent, local or TCP.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use keybridge_link::{LocalSocket, SendQueue, is_transient};
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
    /// Has small messages wait in a queue while it is open.
    pub(super) fn join(&mut self, queue: &SendQueue) {
        match self {
            Self::Local(stream) => stream.join(queue),
            Self::Tcp(_) => {}
        }
    }

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
        poll_fn(|context| self.poll_ready(Some(interest), context)).await
    }

    /// Ready when the socket is ready for this kind of operation. After an error, nothing more must be
    /// written.
    pub(super) fn poll_ready(
        &mut self,
        interest: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Local(stream) => stream.poll_ready(interest, context),
            Self::Tcp(stream) => {
                if interest.is_some_and(Interest::is_writable)
                    && let Poll::Ready(result) = stream.poll_write_ready(context)
                {
                    return Poll::Ready(result);
                }
                if interest.is_some_and(Interest::is_readable) {
                    return stream.poll_read_ready(context);
                }
                Poll::Pending
            }
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
