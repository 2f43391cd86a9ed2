//! A client's socket whose bytes can be left where they are, while its end is still noticed.
//!
//! tokio remembers readiness until a read finds none, and would report unread bytes for ever. Here
//! readiness is noted and cleared at once; the kernel tells of every change anew.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use keybridge_link::register;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    fd: AsyncFd<UnixStream>,
    /// Bytes or the end of input may be waiting.
    readable: bool,
    /// The kernel may take bytes.
    writable: bool,
    client: ClientEnd,
}

/// How far the client has closed its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientEnd {
    Open,
    /// It writes no more; what it wrote can still be unread.
    HalfClosed,
    /// It is gone both ways.
    HungUp,
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
            client: ClientEnd::Open,
        })
    }

    /// The client is gone both ways.
    pub(crate) fn hung_up(&self) -> bool {
        self.client == ClientEnd::HungUp
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
                    self.readable = count == buffer.len() || self.client != ClientEnd::Open;
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
        let interest = match self.client {
            ClientEnd::Open => Interest::READABLE | Interest::WRITABLE,
            ClientEnd::HalfClosed | ClientEnd::HungUp => Interest::WRITABLE,
        };
        let mut guard = self.fd.ready(interest).await?;
        let ready = guard.ready();
        guard.clear_ready_matching(Ready::READABLE | Ready::WRITABLE | Ready::ERROR);
        self.readable |= ready.is_readable();
        self.writable |= ready.is_writable();
        if ready.is_write_closed() {
            self.client = ClientEnd::HungUp;
        } else if ready.is_read_closed() && self.client == ClientEnd::Open {
            self.client = ClientEnd::HalfClosed;
        }
        Ok(())
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self.fd.get_ref().shutdown(Shutdown::Both) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }
}
