//! The connection over which the helper passes its clients to the host.

use std::io;
use std::os::fd::AsFd;

use keybridge_proto::Lane;
use keybridge_proto::direct::passed_as;
use tokio::io::{AsyncReadExt, Interest};

use super::{LocalStream, receive_descriptors, send_descriptors};
use crate::{Link, now};

/// Its end in this process.
pub use std::os::fd::OwnedFd as PassingSocket;

/// Sends bytes and the other end, without waiting. Returns how many bytes were sent: none if a sandbox
/// forbids descriptors.
pub(crate) fn write_with_passing(
    socket: &LocalStream,
    bytes: &[u8],
    passing: &PassingSocket,
) -> usize {
    send_descriptors(socket, bytes, &[passing.as_fd()]).unwrap_or(0)
}

/// Fills a buffer, and receives the end that comes with its bytes, if any.
pub(crate) async fn read_with_passing(
    socket: &mut LocalStream,
    buffer: &mut [u8],
) -> io::Result<Option<PassingSocket>> {
    let (mut filled, mut descriptors) = (0, Vec::new());
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let receive = || receive_descriptors(&*socket, &mut *rest, &mut descriptors);
        filled += match socket.async_io(Interest::READABLE, receive).await {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            // A sandbox can forbid descriptors.
            Err(_) => socket.read_exact(rest).await?,
        };
    }
    Ok(descriptors.pop())
}

impl Link {
    /// Passes a client's connection to the host, which serves it from then on. False if the link has to
    /// carry it, or if nothing has come from the host for a while: one that is held up serves no client.
    pub fn pass(&self, lane: Lane, client: impl AsFd) -> bool {
        let mut passing = self.0.direct.passing.borrow_mut();
        let is_alive = !self.is_over() && self.0.liveness.borrow().is_fresh(now());
        let Some(host) = passing.as_ref().filter(|_| is_alive) else { return false };
        match send_descriptors(host, &[passed_as(lane)], &[client.as_fd()]) {
            Ok(_) => true,
            // So many wait already that this one isn't slower on the link.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                tracing::debug!(%error, "clients are no longer passed");
                *passing = None;
                false
            }
        }
    }

    /// The same, after the host has answered a PING. False if the link has to carry the client, or is
    /// over.
    pub async fn pass_if_alive(&self, lane: Lane, client: impl AsFd) -> bool {
        if self.0.direct.passing.borrow().is_none() {
            return false;
        }
        let before = self.0.last_pong.get();
        self.ping_now();
        while self.0.last_pong.get() == before && !self.is_over() {
            self.0.ponged.notified().await;
        }
        self.pass(lane, client)
    }
}
