//! Unix sockets whose bytes can be left where they are, while their end is still noticed, and that are
//! polled for writing only while their buffer is full.
//!
//! tokio remembers readiness until a read finds none, and would report unread bytes for ever. Here
//! readiness is noted and cleared at once; the kernel tells of every change anew. And a socket that is
//! polled for writing wakes its task each time the peer reads something: once for every answer.
//!
//! No call waits, whatever the flags of the socket are.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use super::register;
use crate::Duplex;
use crate::platform::NO_SIGNAL;

/// A connected Unix socket, for a runtime of one thread.
#[derive(Debug)]
pub struct LocalSocket {
    fd: AsyncFd<UnixStream>,
    /// Bytes or the end of input may be waiting.
    readable: bool,
    /// The socket, polled for writing while its buffer is full.
    full: Option<AsyncFd<OwnedFd>>,
    peer: PeerShutdown,
}

/// How far the peer has closed its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerShutdown {
    Open,
    /// It writes no more; what it wrote can still be unread.
    HalfClosed,
    /// It is gone both ways.
    HungUp,
}

impl LocalSocket {
    /// Takes over a socket that tokio has connected.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        Self::from_std(stream.into_std()?)
    }

    /// Has tokio poll a socket.
    pub fn from_std(stream: UnixStream) -> io::Result<Self> {
        let fd = register(stream, Interest::READABLE)?;
        Ok(Self { fd, readable: false, full: None, peer: PeerShutdown::Open })
    }

    /// Notes what the kernel tells. True if it told something.
    fn poll_news(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let mut is_new = false;
        // That reading is over stays ready for ever, so it must not be waited for again.
        if self.peer == PeerShutdown::Open
            && let Poll::Ready(guard) = self.fd.poll_read_ready(context)
        {
            let mut guard = guard?;
            let ready = guard.ready();
            guard.clear_ready_matching(Ready::READABLE);
            self.readable |= ready.is_readable();
            if ready.is_read_closed() {
                self.peer = PeerShutdown::HalfClosed;
            }
            is_new = true;
        }
        // It is polled for reading alone: of the other direction only a hang-up is reported.
        if self.peer != PeerShutdown::HungUp
            && let Poll::Ready(guard) = self.fd.poll_write_ready(context)
        {
            drop(guard?);
            self.peer = PeerShutdown::HungUp;
            is_new = true;
        }
        Ok(is_new)
    }

    /// Ready when there may be room.
    fn poll_writable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(full) = &self.full else { return Poll::Ready(Ok(())) };
        let result = ready!(full.poll_write_ready(context)).map(drop);
        self.full = None;
        Poll::Ready(result)
    }
}

impl Duplex for LocalSocket {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let is_new = self.poll_news(context)?;
        if is_new || self.readable && wants.is_some_and(Interest::is_readable) {
            return Poll::Ready(Ok(()));
        }
        if wants.is_some_and(Interest::is_writable) {
            return self.poll_writable(context);
        }
        Poll::Pending
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.readable {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let size = buffer.len();
        match recv(self.fd.get_ref(), buffer, RecvFlags::DONTWAIT).map_err(io::Error::from) {
            Ok((_, 0)) => Ok(0),
            Ok((_, count)) => {
                // A short read has emptied the socket. After a half close the end is still to be read,
                // and nothing will tell of it again.
                self.readable = count == size || self.peer != PeerShutdown::Open;
                Ok(count)
            }
            Err(error) => {
                self.readable = error.kind() != io::ErrorKind::WouldBlock;
                Err(error)
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.full.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let socket = self.fd.get_ref();
        let flags = NO_SIGNAL | SendFlags::DONTWAIT;
        let written = send(socket, bytes, flags).map_err(io::Error::from);
        match &written {
            Ok(count) if *count == bytes.len() => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            // If that fails, the next write fails with the reason.
            Ok(_) => self.full = poll_for_writing(socket).ok(),
            Err(_) => self.full = Some(poll_for_writing(socket)?),
        }
        written
    }

    fn end_output(&mut self) -> io::Result<()> {
        self.fd.get_ref().shutdown(Shutdown::Write)
    }

    /// Ends the connection also where another process holds the socket too.
    fn shutdown(&mut self) -> io::Result<()> {
        self.peer = PeerShutdown::HungUp;
        match self.fd.get_ref().shutdown(Shutdown::Both) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    fn hung_up(&self) -> bool {
        self.peer == PeerShutdown::HungUp
    }
}

fn poll_for_writing(socket: &UnixStream) -> io::Result<AsyncFd<OwnedFd>> {
    register(socket.as_fd().try_clone_to_owned()?, Interest::WRITABLE)
}
