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
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::net::{SendFlags, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::register;
use super::send_queue::{Outgoing, SendQueue};
use crate::is_transient;
use crate::platform::NO_SIGNAL;

/// Writes to a socket, and polls it for writing only while its buffer is full.
#[derive(Debug, Default)]
pub struct WriteReadiness {
    /// The socket, while its buffer is full.
    full: Option<AsyncFd<OwnedFd>>,
    /// For a socket whose messages may wait for those to others.
    outgoing: Option<Outgoing>,
}

impl WriteReadiness {
    /// Has small messages wait in a queue while it is open.
    pub(super) fn join(&mut self, queue: &SendQueue, socket: &Rc<UnixStream>) {
        self.outgoing = Some(Outgoing::new(queue.clone(), Rc::clone(socket)));
    }

    /// Whether the last write found the buffer full, or something is left over.
    fn is_full(&self) -> bool {
        self.full.is_some() || self.has_left_over()
    }

    /// Whether the socket didn't take a message that was written.
    fn has_left_over(&self) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.left_over().is_some())
    }

    /// Sends what waits in the queue. False if something is left over.
    pub(super) fn flush(&self) -> bool {
        if let Some(outgoing) = &self.outgoing {
            outgoing.send();
        }
        !self.has_left_over()
    }

    /// Writes to the socket, unless its buffer is known to be full. Never waits.
    pub fn write(&mut self, socket: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.outgoing.as_ref().is_some_and(|outgoing| outgoing.take(bytes)) {
            return Ok(bytes.len());
        }
        if !self.flush() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        send_now(&mut self.full, socket, bytes)
    }

    /// Ready when a full buffer may have room again; never if it isn't full.
    pub(super) fn poll_room(
        &mut self,
        socket: &UnixStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(outgoing) = &self.outgoing {
            outgoing.set_owner(context.waker());
        }
        if self.is_full() { self.poll_writable(socket, context) } else { Poll::Pending }
    }

    /// Ready when there may be room again. What was left over is sent before.
    fn poll_writable(
        &mut self,
        socket: &UnixStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(full) = &self.full {
                let result = ready!(full.poll_write_ready(context)).map(drop);
                self.full = None;
                result?;
            }
            let Some(mut left_over) = self.outgoing.as_ref().and_then(Outgoing::left_over) else {
                return Poll::Ready(Ok(()));
            };
            match send_now(&mut self.full, socket, &left_over) {
                Ok(count) => left_over.drain(..count).for_each(drop),
                Err(error) if is_transient(&error) => {}
                // It stays left over, so that nothing is written after this gap.
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Sends what the socket takes. If that isn't all, `full` is set.
fn send_now(
    full: &mut Option<AsyncFd<OwnedFd>>,
    socket: &UnixStream,
    bytes: &[u8],
) -> io::Result<usize> {
    let flags = NO_SIGNAL | SendFlags::DONTWAIT;
    let written = send(socket, bytes, flags).map_err(io::Error::from);
    match &written {
        Ok(count) if *count == bytes.len() => {}
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
        // If that fails, the next write fails with the reason.
        Ok(_) => *full = poll_for_writing(socket).ok(),
        Err(_) => *full = Some(poll_for_writing(socket)?),
    }
    written
}

fn poll_for_writing(socket: &UnixStream) -> io::Result<AsyncFd<OwnedFd>> {
    register(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)
}

/// A connected Unix socket, for a runtime of one thread.
#[derive(Debug)]
pub struct LocalSocket {
    fd: AsyncFd<Rc<UnixStream>>,
    write_readiness: WriteReadiness,
}

impl LocalSocket {
    /// Takes over a socket that tokio has connected.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let fd = register(Rc::new(stream.into_std()?), Interest::READABLE)?;
        Ok(Self { fd, write_readiness: WriteReadiness::default() })
    }

    /// Has small messages wait in a queue while it is open.
    pub fn join(&mut self, queue: &SendQueue) {
        self.write_readiness.join(queue, self.fd.get_ref());
    }

    /// Reads without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fd.try_io(Interest::READABLE, |socket| (&**socket).read(buffer))?;
        if 0 < count && count < buffer.len() {
            // A short read has emptied it; the kernel wakes us when there is more. There is no other
            // thread that could have been woken in between.
            let nothing = |_: &Rc<UnixStream>| Err::<(), _>(io::ErrorKind::WouldBlock.into());
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

    /// Ready when a read or a write can make progress, and when the socket takes what it has left over. After
    /// an error, what was written may be lost, and nothing more must be.
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
        self.write_readiness.poll_room(self.fd.get_ref(), context)
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
            let Self { socket, write_readiness } = &mut *self;
            ready!(write_readiness.poll_writable(socket, context))?;
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
