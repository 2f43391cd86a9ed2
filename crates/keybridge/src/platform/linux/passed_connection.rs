//! The connection of a passed client that is served. No call waits.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use keybridge_link::{ClientSocket, ReadOutcome, SendQueue};
use rustix::net::sockopt::set_socket_oobinline;

use super::closing::{LastClose, close_elsewhere, has_unread, is_closing_slow};
use super::passed_clients::{InUse, PassedSocket};

/// Ends the client when it is dropped.
#[derive(Debug)]
pub(crate) struct PassedConnection {
    socket: ClientSocket,
    /// After `socket`: what the client has sent and nobody has read is closed with it.
    last_close: LastClose,
    _in_use: InUse,
}

impl PassedConnection {
    /// Begins to serve a client.
    pub(crate) fn new(PassedSocket { socket, in_use }: PassedSocket) -> io::Result<Self> {
        // The kernel closes the descriptors of an urgent byte in this thread if the byte isn't read in line.
        set_socket_oobinline(&socket, true)?;
        Ok(Self {
            socket: ClientSocket::new(socket)?,
            last_close: LastClose::default(),
            _in_use: in_use,
        })
    }

    /// Reads what is there. An error if descriptors come with it: no client of an agent sends any.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if is_closing_slow() {
            return Err(io::Error::other("descriptors of clients are still being closed"));
        }
        let mut descriptors = Vec::new();
        let read = self.socket.read_with_descriptors(buffer, &mut descriptors);
        if descriptors.is_empty() {
            return read;
        }
        close_elsewhere(descriptors);
        Err(io::Error::other("the client sends descriptors"))
    }

    /// Writes what the socket takes; 0 while it takes nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    /// Has small messages wait in a queue while it is open.
    pub(crate) fn join(&mut self, queue: &SendQueue) {
        self.socket.join(queue);
    }

    /// Sends what waits in the queue. False if the socket doesn't take all of it.
    pub(crate) fn flush(&self) -> bool {
        self.socket.flush()
    }

    /// Ready when something is new.
    pub(crate) fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_changed(context)
    }

    /// The client is gone both ways.
    pub(crate) fn hung_up(&self) -> bool {
        self.socket.hung_up()
    }
}

impl Drop for PassedConnection {
    fn drop(&mut self) {
        // Closing alone doesn't end it: the helper can have a duplicate.
        let _ = self.socket.shutdown();
        if has_unread(&self.socket) {
            self.last_close.0 = self.socket.as_fd().try_clone_to_owned().ok();
        }
    }
}
