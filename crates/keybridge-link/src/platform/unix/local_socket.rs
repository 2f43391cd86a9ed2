//! Unix sockets that are polled for writing only while their buffer is full.
//!
//! A socket that is polled for writing wakes its task each time the peer reads something: once for every
//! answer. These are polled for reading, and for writing only from a write that found the buffer full
//! until there is room again.

use std::future::poll_fn;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{SendFlags, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::register;
use crate::is_transient;
use crate::platform::NO_SIGNAL;

/// Polls a socket for writing, only while its buffer is full.
#[derive(Debug, Default)]
pub struct WriteReadiness(Option<AsyncFd<OwnedFd>>);

impl WriteReadiness {
    /// Whether the last write found the buffer full.
    const fn is_full(&self) -> bool {
        self.0.is_some()
    }

    /// Writes to the socket, unless its buffer is known to be full. Never waits.
    pub fn write(&mut self, socket: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let flags = NO_SIGNAL | SendFlags::DONTWAIT;
        let written = send(socket, bytes, flags).map_err(io::Error::from);
        match &written {
            Ok(count) if *count == bytes.len() => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            // If that fails, the next write fails with the reason.
            Ok(_) => self.0 = poll_for_writing(socket).ok(),
            Err(_) => self.0 = Some(poll_for_writing(socket)?),
        }
        written
    }

    /// Ready when a full buffer has room again; never if it isn't full.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_full() { self.poll_writable(context) } else { Poll::Pending }
    }

    /// Ready when there may be room again.
    fn poll_writable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(socket) = &self.0 else { return Poll::Ready(Ok(())) };
        let result = ready!(socket.poll_write_ready(context)).map(drop);
        self.0 = None;
        Poll::Ready(result)
    }
}

fn poll_for_writing(socket: &UnixStream) -> io::Result<AsyncFd<OwnedFd>> {
    register(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)
}

/// A connected Unix socket, for a runtime of one thread.
#[derive(Debug)]
pub struct LocalSocket {
    fd: AsyncFd<UnixStream>,
    write_readiness: WriteReadiness,
}

impl LocalSocket {
    /// Takes over a socket that tokio has connected.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let fd = register(stream.into_std()?, Interest::READABLE)?;
        Ok(Self { fd, write_readiness: WriteReadiness::default() })
    }

    /// Reads without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fd.try_io(Interest::READABLE, |mut socket| socket.read(buffer))?;
        if 0 < count && count < buffer.len() {
            // A short read has emptied it; the kernel wakes us when there is more. There is no other
            // thread that could have been woken in between.
            let nothing = |_: &UnixStream| Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.fd.try_io(Interest::READABLE, nothing);
        }
        Ok(count)
    }

    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_readiness.write(self.fd.get_ref(), bytes)
    }

    /// Waits until a read or a write can make progress. Cancel-safe.
    pub async fn ready(&mut self, interest: Interest) -> io::Result<()> {
        poll_fn(|context| self.poll_ready(Some(interest), context)).await
    }

    /// Ready when a read or a write can make progress.
    pub fn poll_ready(
        &mut self,
        interest: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if interest.is_some_and(Interest::is_writable) && !self.write_readiness.is_full() {
            return Poll::Ready(Ok(()));
        }
        if interest.is_some_and(Interest::is_readable)
            && let Poll::Ready(readable) = self.fd.poll_read_ready(context)
        {
            return Poll::Ready(readable.map(drop));
        }
        if interest.is_some_and(Interest::is_writable) {
            return self.write_readiness.poll_room(context);
        }
        Poll::Pending
    }

    /// Closes the socket in both directions, also for its writing half.
    pub(crate) fn close(&self) {
        // An error means that it is closed already.
        let _ = self.fd.get_ref().shutdown(Shutdown::Both);
    }

    /// The same socket's writing half, for another task.
    pub fn writer(&self) -> io::Result<LocalSocketWriter> {
        Ok(LocalSocketWriter {
            socket: self.fd.get_ref().try_clone()?,
            write_readiness: WriteReadiness::default(),
        })
    }
}

/// The writing half of a connected Unix socket.
#[derive(Debug)]
pub struct LocalSocketWriter {
    socket: UnixStream,
    write_readiness: WriteReadiness,
}

impl LocalSocketWriter {
    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_readiness.write(&self.socket, bytes)
    }

    /// Closes the socket in both directions, also for its reader.
    pub(crate) fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl AsyncRead for LocalSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // Goes through tokio's budget, so that a peer that never stops writing can't starve the other
            // tasks of this thread.
            drop(ready!(self.fd.poll_read_ready(context))?);
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
}

impl AsyncWrite for LocalSocketWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.write_readiness.poll_writable(context))?;
            match self.try_write(bytes) {
                Err(error) if is_transient(&error) => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(Shutdown::Write))
    }
}
