//! Named pipes.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::windows::named_pipe::{ClientOptions, NamedPipeClient, NamedPipeServer};

use crate::{Duplex, is_transient};

/// The error while each instance of a pipe has a client. No event says when one is free.
const PIPE_BUSY: i32 = 231;

/// The pause between attempts to open a pipe that is busy.
const PAUSE_WHILE_BUSY: Duration = Duration::from_millis(5);

/// A connected pipe: the end that has opened it, or the end that was opened.
#[derive(Debug)]
pub enum LocalStream {
    /// Ours is the client's end.
    Client(NamedPipeClient),
    /// Ours is the server's end.
    Server(NamedPipeServer),
}

/// Calls the same function of either end.
macro_rules! either {
    ($stream:expr, $end:ident => $call:expr) => {
        match $stream {
            LocalStream::Client($end) => $call,
            LocalStream::Server($end) => $call,
        }
    };
}

impl LocalStream {
    /// Opens a pipe by its path, `\\.\pipe\NAME`. Waits while the server is busy, so the caller sets a
    /// time limit. The server learns who we are, and can't act as us.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        loop {
            match ClientOptions::new().open(path.as_ref()) {
                Ok(client) => return Ok(Self::Client(client)),
                Err(error) if error.raw_os_error() == Some(PIPE_BUSY) => {
                    tokio::time::sleep(PAUSE_WHILE_BUSY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match either!(self, end => end.try_read(buffer)) {
            // The other end was closed.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            result => result,
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, end => end.try_write(bytes))
    }

    fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(either!(self, end => end.poll_read_ready(context)))?;
            match self.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_write(&self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(either!(self, end => end.poll_write_ready(context)))?;
            match self.try_write(bytes) {
                Err(error) if is_transient(&error) => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// A connected pipe that is read and written without waiting.
#[derive(Debug)]
pub struct LocalSocket(LocalStream);

impl LocalSocket {
    /// Takes over a pipe that is connected.
    pub fn new(stream: LocalStream) -> io::Result<Self> {
        Ok(Self(stream))
    }
}

impl Duplex for LocalSocket {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if wants.is_some_and(Interest::is_writable)
            && let Poll::Ready(result) = either!(&self.0, end => end.poll_write_ready(context))
        {
            return Poll::Ready(result);
        }
        if wants.is_some_and(Interest::is_readable) {
            return either!(&self.0, end => end.poll_read_ready(context));
        }
        Poll::Pending
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }
}

impl AsyncRead for LocalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(&self, context, buffer)
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
