//! A client's socket whose bytes can be left where they are, while its end is still noticed.
//!
//! tokio remembers readiness until a read finds none, and would report unread bytes for ever. Here
//! readiness is noted and cleared at once; the kernel tells of every change anew.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use crate::registered::register;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    fd: AsyncFd<UnixStream>,
    /// Bytes or the end of input may be waiting.
    readable: bool,
    /// The kernel may take bytes.
    writable: bool,
    /// The client writes no more; what it wrote can still be unread.
    half_closed: bool,
    hung_up: bool,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(usize),
    Nothing,
    End,
}

impl ClientSocket {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            fd: register(stream, Interest::READABLE | Interest::WRITABLE)?,
            readable: true,
            writable: true,
            half_closed: false,
            hung_up: false,
        })
    }

    /// The client is gone both ways.
    pub(crate) fn hung_up(&self) -> bool {
        self.hung_up
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Found> {
        if !self.readable {
            return Ok(Found::Nothing);
        }
        loop {
            return match self.fd.get_ref().read(buffer) {
                Ok(0) => Ok(Found::End),
                Ok(count) => {
                    // A short read has emptied the socket. After a half close the end is still to
                    // be read, and nothing will tell of it again.
                    self.readable = count == buffer.len() || self.half_closed;
                    Ok(Found::Bytes(count))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(Found::Nothing)
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Writes what the socket takes; 0 while it takes nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.writable || bytes.is_empty() {
            return Ok(0);
        }
        loop {
            return match self.fd.get_ref().write(bytes) {
                Ok(count) => {
                    self.writable = count == bytes.len();
                    Ok(count)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    Ok(0)
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Waits until something is new. Loses nothing when it is dropped.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        // That reading is over stays ready for ever, so it must not be waited for again.
        let interest = if self.half_closed {
            Interest::WRITABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        let mut guard = self.fd.ready(interest).await?;
        let ready = guard.ready();
        guard.clear_ready_matching(Ready::READABLE | Ready::WRITABLE | Ready::ERROR);
        self.readable |= ready.is_readable();
        self.writable |= ready.is_writable();
        self.half_closed |= ready.is_read_closed();
        self.hung_up |= ready.is_write_closed();
        Ok(())
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.fd.get_ref().shutdown(Shutdown::Both) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }
}
