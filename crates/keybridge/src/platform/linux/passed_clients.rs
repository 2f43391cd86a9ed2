//! Clients whose own connections the helper passes to this process.
//!
//! The helper isn't trusted. It can pass any descriptor, and keep a duplicate of what it passes. So each
//! one is checked before it is used, and what isn't a client is closed elsewhere.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use keybridge_link::{is_transient, receive_descriptors, register};
use keybridge_proto::Lane;
use keybridge_proto::direct::lane_of_passed;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{socket_acceptconn, socket_cookie, socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, getpeername, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::closing::{LastClose, close_elsewhere, end_connection, is_closing_slow};

/// The end of a socket pair over which the helper passes its clients.
#[derive(Debug)]
pub struct PassedClients {
    socket: AsyncFd<UnixStream>,
    /// After `socket`: what the helper has passed and nobody has received is closed with it.
    last_close: LastClose,
    /// The users that a client may have: the helper's own, and root in the target.
    users: Vec<u32>,
    /// The sockets that are in use.
    in_use: Rc<RefCell<HashSet<u64>>>,
}

/// The connection of a client. The helper can have a duplicate: its flags can change at any time, and
/// closing it doesn't end the connection.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    /// The connection.
    pub(crate) socket: UnixStream,
    /// To be held for as long as the client is served.
    pub(super) in_use: InUse,
}

/// What the helper has passed.
#[derive(Debug)]
pub(crate) enum Received {
    /// A client of a lane.
    Client(PassedSocket, Lane),
    /// A client that isn't to be served, and is closed already.
    Refused,
    /// Nothing more comes.
    End,
}

/// Notes that a socket is in use, until this is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    cookie: u64,
    all: Rc<RefCell<HashSet<u64>>>,
}

/// What the helper passed isn't a client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAClient {
    /// A message of another form.
    #[error("a message has {bytes} bytes and {descriptors} descriptors")]
    Message {
        /// How many bytes came.
        bytes: usize,
        /// How many descriptors came.
        descriptors: usize,
    },
    /// The byte names no lane.
    #[error("no lane is called {0}")]
    Lane(u8),
    /// Not a connected Unix stream socket.
    #[error("a descriptor isn't a connection of a client")]
    Descriptor,
    /// The other end is this process.
    #[error("a connection is one of the host's own")]
    Own,
    /// It is served already.
    #[error("a connection was passed twice")]
    Twice,
    /// What came before isn't closed yet.
    #[error("descriptors of a helper are still being closed")]
    StillClosing,
    /// Receiving failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PassedClients {
    /// For clients of these users. The helper gets the second value.
    pub fn new(users: Vec<u32>) -> io::Result<(Self, OwnedFd)> {
        if is_closing_slow() {
            return Err(io::Error::other(NotAClient::StillClosing));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let in_use = HashSet::from([socket_cookie(&ours)?, socket_cookie(&theirs)?]);
        let socket = register(ours, Interest::READABLE)?;
        let (in_use, last_close) = (Rc::new(RefCell::new(in_use)), LastClose::default());
        Ok((Self { socket, last_close, users, in_use }, theirs.into()))
    }

    /// Waits for what is passed next. After an error there must not be another call. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Received, NotAClient> {
        loop {
            if is_closing_slow() {
                return Err(NotAClient::StillClosing);
            }
            let (mut byte, mut descriptors) = ([0], Vec::new());
            let mut guard = self.socket.readable().await?;
            let receive = |socket: &AsyncFd<UnixStream>| {
                receive_descriptors(socket.get_ref(), &mut byte, &mut descriptors)
            };
            match guard.try_io(receive) {
                Ok(Ok(0)) if descriptors.is_empty() => return Ok(Received::End),
                Ok(Ok(bytes)) => return self.admit(bytes, byte, descriptors),
                Ok(Err(error)) if is_transient(&error) => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    /// What a message has passed.
    fn admit(
        &self,
        bytes: usize,
        [byte]: [u8; 1],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Received, NotAClient> {
        let [descriptor] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|descriptors| {
            let count = descriptors.len();
            close_elsewhere(descriptors);
            NotAClient::Message { bytes, descriptors: count }
        })?;
        match self.check(byte, descriptor.as_fd()) {
            Ok(Some((cookie, lane))) => {
                self.in_use.borrow_mut().insert(cookie);
                let in_use = InUse { cookie, all: Rc::clone(&self.in_use) };
                Ok(Received::Client(PassedSocket { socket: descriptor.into(), in_use }, lane))
            }
            Ok(None) => {
                end_connection(descriptor);
                Ok(Received::Refused)
            }
            Err(error) => {
                close_elsewhere(vec![descriptor]);
                Err(error)
            }
        }
    }

    /// The cookie and the lane of a client; `None` if it isn't to be served.
    fn check(
        &self,
        byte: u8,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Option<(u64, Lane)>, NotAClient> {
        check_is_connection(descriptor)?;
        let lane = lane_of_passed(byte).ok_or(NotAClient::Lane(byte))?;
        let cookie = socket_cookie(descriptor).map_err(io::Error::from)?;
        let peer = getsockopt(&descriptor, PeerCredentials).map_err(io::Error::from)?;
        if u32::try_from(peer.pid()) == Ok(std::process::id()) {
            return Err(NotAClient::Own);
        }
        if self.in_use.borrow().contains(&cookie) {
            return Err(NotAClient::Twice);
        }
        if !self.users.contains(&peer.uid()) {
            tracing::debug!(uid = peer.uid(), "refused a client of another user");
            return Ok(None);
        }
        if has_hung_up(descriptor) {
            tracing::debug!("a client was gone before it was served");
            return Ok(None);
        }
        Ok(Some((cookie, lane)))
    }
}

impl PassedSocket {
    /// Sends a reply in place of the greeting, and ends the connection.
    pub(crate) fn refuse(self, reply: &[u8]) {
        // A new socket has room for a line; if not, the end alone has to do.
        let _ = send(&self.socket, reply, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        end_connection(self.socket.into());
    }
}

impl Drop for PassedClients {
    fn drop(&mut self) {
        let socket = self.socket.get_ref();
        // Nothing is passed from now on.
        let _ = socket.shutdown(Shutdown::Both);
        self.last_close.0 = socket.try_clone().ok().map(OwnedFd::from);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.all.borrow_mut().remove(&self.cookie);
    }
}

/// Only asks the socket layer, which doesn't wait for anything.
fn check_is_connection(descriptor: BorrowedFd<'_>) -> Result<(), NotAClient> {
    let is_connection = socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && socket_type(descriptor) == Ok(SocketType::STREAM)
        && socket_acceptconn(descriptor) == Ok(false)
        && getpeername(descriptor).is_ok();
    if is_connection { Ok(()) } else { Err(NotAClient::Descriptor) }
}

/// Whether both directions are closed: the client is gone, or was served before.
fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec::default()));
    found.is_ok() && polled.iter().any(|polled| polled.revents().contains(PollFlags::HUP))
}
