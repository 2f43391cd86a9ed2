//! A client's socket whose bytes can be left where they are, while its end is still noticed.
//!
//! tokio remembers readiness until a read finds none, and would report unread bytes for ever. Here
//! readiness is noted and cleared at once; the kernel tells of every change anew.
//!
//! No call waits, whatever the flags of the socket are: another process can hold it too, and change them.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use super::{SendQueue, WriteReadiness, receive_descriptors, register};
use crate::ReadOutcome;

/// A client's connection.
#[derive(Debug)]
pub struct ClientSocket {
    fd: AsyncFd<Rc<UnixStream>>,
    /// Bytes or the end of input may be waiting.
    readable: bool,
    /// Tells when the kernel takes bytes again, if it took none.
    room: WriteReadiness,
    client: ClientShutdown,
}

/// How far the client has closed its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientShutdown {
    Open,
    /// It writes no more; what it wrote can still be unread.
    HalfClosed,
    /// It is gone both ways.
    HungUp,
}

impl ClientSocket {
    /// Has tokio poll the socket of a client.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            fd: register(Rc::new(stream), Interest::READABLE)?,
            readable: true,
            room: WriteReadiness::default(),
            client: ClientShutdown::Open,
        })
    }

    /// Has small messages wait in a queue while it is open.
    pub fn join(&mut self, queue: &SendQueue) {
        self.room.join(queue, self.fd.get_ref());
    }

    /// The client is gone both ways.
    pub fn hung_up(&self) -> bool {
        self.client == ClientShutdown::HungUp
    }

    /// Reads what is there. Descriptors that come with it are closed, which can wait.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        self.read_by(buffer, |socket, buffer| Ok(recv(socket, buffer, RecvFlags::DONTWAIT)?.1))
    }

    /// Reads what is there, and the descriptors that come with it.
    pub fn read_with_descriptors(
        &mut self,
        buffer: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> io::Result<ReadOutcome> {
        self.read_by(buffer, |socket, buffer| receive_descriptors(socket, buffer, descriptors))
    }

    fn read_by(
        &mut self,
        buffer: &mut [u8],
        mut receive: impl FnMut(&UnixStream, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<ReadOutcome> {
        if !self.readable {
            return Ok(ReadOutcome::Nothing);
        }
        loop {
            return match receive(self.fd.get_ref(), buffer) {
                Ok(0) => Ok(ReadOutcome::End),
                Ok(count) => {
                    // A short read has emptied the socket. After a half close the end is still to
                    // be read, and nothing will tell of it again.
                    self.readable = count == buffer.len() || self.client != ClientShutdown::Open;
                    Ok(ReadOutcome::Bytes(count))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(ReadOutcome::Nothing)
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Writes what the socket takes; 0 while it takes nothing.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            return match self.room.write(self.fd.get_ref(), bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                result => result,
            };
        }
    }

    /// Sends what waits in the queue. False if the socket doesn't take all of it.
    pub fn flush(&self) -> bool {
        self.room.flush()
    }

    /// Waits until something is new. Loses nothing when it is dropped.
    pub async fn changed(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_changed(context)).await
    }

    /// Ready when something is new.
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut is_new = false;
        // That reading is over stays ready for ever, so it must not be waited for again.
        if self.client == ClientShutdown::Open
            && let Poll::Ready(guard) = self.fd.poll_read_ready(context)
        {
            let mut guard = guard?;
            let ready = guard.ready();
            guard.clear_ready_matching(Ready::READABLE);
            self.readable |= ready.is_readable();
            if ready.is_read_closed() {
                self.client = ClientShutdown::HalfClosed;
            }
            is_new = true;
        }
        // It is polled for reading alone: of the other direction only a hang-up is told.
        if let Poll::Ready(guard) = self.fd.poll_write_ready(context) {
            drop(guard?);
            self.client = ClientShutdown::HungUp;
            is_new = true;
        }
        if is_new {
            return Poll::Ready(Ok(()));
        }
        self.room.poll_room(self.fd.get_ref(), context)
    }

    /// Ends the connection, also where another process holds the socket too.
    pub fn shutdown(&self) -> io::Result<()> {
        self.room.flush();
        match self.fd.get_ref().shutdown(Shutdown::Both) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}
