//! Unix sockets that wake nobody for room that nobody waits for.
//!
//! The kernel tells whoever watches a socket for room to write each time its peer has read something,
//! and that would be a wake-up for every answer. Here a socket is watched for what can be read, and for
//! room only after it was found full, until there is some.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::register;

/// Tells when a socket that was full has room again.
#[derive(Debug, Default)]
pub struct Room(Option<AsyncFd<OwnedFd>>);

impl Room {
    /// Whether room is watched for.
    const fn is_watched(&self) -> bool {
        self.0.is_some()
    }

    /// Writes to the socket that this is about, unless it is known to be full.
    pub fn write(&mut self, mut socket: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        if self.is_watched() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = socket.write(bytes);
        match &written {
            Ok(count) if *count == bytes.len() => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            // If that fails, the next write finds the socket full, and says why it can't be watched.
            Ok(_) => self.0 = watch_for_room(socket).ok(),
            Err(_) => self.0 = Some(watch_for_room(socket)?),
        }
        written
    }

    /// Waits until a socket that was found full has room; for ever if it wasn't.
    pub async fn came(&mut self) -> io::Result<()> {
        if !self.is_watched() {
            return std::future::pending().await;
        }
        poll_fn(|context| self.poll_came(context)).await
    }

    /// Ready when there may be room.
    fn poll_came(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(socket) = &self.0 else { return Poll::Ready(Ok(())) };
        let came = ready!(socket.poll_write_ready(context)).map(drop);
        self.0 = None;
        Poll::Ready(came)
    }
}

fn watch_for_room(socket: &UnixStream) -> io::Result<AsyncFd<OwnedFd>> {
    register(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)
}

/// A connected Unix socket, for a runtime of one thread.
#[derive(Debug)]
pub struct QuietSocket {
    fd: AsyncFd<UnixStream>,
    room: Room,
}

impl QuietSocket {
    /// Takes over a socket that tokio has connected.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        let fd = register(stream.into_std()?, Interest::READABLE)?;
        Ok(Self { fd, room: Room::default() })
    }

    /// Reads without waiting.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fd.try_io(Interest::READABLE, |mut socket| socket.read(buffer))?;
        if 0 < count && count < buffer.len() {
            // A short read has emptied it, and the kernel tells when there is more. No other thread
            // can have been told between the two.
            let nothing = |_: &UnixStream| Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.fd.try_io(Interest::READABLE, nothing);
        }
        Ok(count)
    }

    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room.write(self.fd.get_ref(), bytes)
    }

    /// Waits until a read, or a write, may do something. It may be cancelled.
    pub async fn ready(&mut self, interest: Interest) -> io::Result<()> {
        if interest.is_writable() && !self.room.is_watched() {
            return Ok(());
        }
        let Self { fd, room } = self;
        let readable = async {
            if interest.is_readable() {
                fd.readable().await.map(drop)
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            readable = readable => readable,
            came = room.came(), if interest.is_writable() => came,
        }
    }

    /// The same socket once more, for a task of its own that writes.
    pub fn writer(&self) -> io::Result<QuietWriter> {
        Ok(QuietWriter { socket: self.fd.get_ref().try_clone()?, room: Room::default() })
    }
}

/// One direction of a connected Unix socket.
#[derive(Debug)]
pub struct QuietWriter {
    socket: UnixStream,
    room: Room,
}

impl QuietWriter {
    /// Writes without waiting.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room.write(&self.socket, bytes)
    }
}

impl AsyncRead for QuietSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // A peer that writes without end doesn't keep the other tasks of this thread waiting:
            // tokio says now and then that nothing is there.
            drop(ready!(self.fd.poll_read_ready(context))?);
            match self.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for QuietWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.room.poll_came(context))?;
            match self.try_write(bytes) {
                Err(error) if is_for_later(&error) => {}
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

impl AsFd for QuietWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for QuietSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}

/// Whether an error says that a socket has nothing to read, or no room, at the moment.
pub fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
