//! A client whose own connection the helper has passed to us, in place of a stream of the mux.
//!
//! What the helper does for a client of a stream is done here. On the gpg lane the agent session does it
//! all. On the ssh lane, requests that are unanswered when the session ends get a failure.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::{ClientSocket, ReadOutcome, StopSignal};
use keybridge_proto::Lane;
use keybridge_proto::ssh::PendingRequests;
use rustix::net::sockopt::set_socket_oobinline;

use super::admission::Admission;
use super::client::Client;
use super::closing::{LastClose, close_elsewhere, has_unread, is_closing_slow};
use crate::platform::{InUse, Passed, PassedClients, PassedSocket};

/// What one read of a client takes: many lines. A pipelining client leaves at most that much with us.
pub(super) const READ_SIZE: usize = 32 * 1024;

/// How many bytes of early requests are read to be refused, as many as a stream would carry.
const MOST_REFUSED: usize = 256 * 1024;

/// One client's connection.
#[derive(Debug)]
pub(super) struct PassedClient {
    socket: ClientSocket,
    /// Shared by all clients of a bridge.
    scratch: Rc<RefCell<Vec<u8>>>,
    /// Bytes that the session hasn't taken yet, from this one on.
    unread: Vec<u8>,
    taken: usize,
    at_end: bool,
    is_gone: bool,
    ending: StopSignal,
    /// `changed` has told of the end.
    knows_of_ending: bool,
    /// The unanswered requests of the ssh lane.
    pending: Option<PendingRequests>,
    /// After `socket`: what the client has sent and nobody has read is closed with it.
    last_close: LastClose,
    _in_use: InUse,
}

impl PassedClient {
    pub(super) fn new(
        PassedSocket { socket, in_use }: PassedSocket,
        lane: Lane,
        scratch: Rc<RefCell<Vec<u8>>>,
        ending: StopSignal,
    ) -> std::io::Result<Self> {
        let pending = match lane {
            Lane::Gpg => None,
            Lane::Ssh => Some(PendingRequests::default()),
        };
        // The kernel closes the descriptors of an urgent byte in this thread if the byte isn't read in line.
        set_socket_oobinline(&socket, true)?;
        Ok(Self {
            socket: ClientSocket::new(socket)?,
            scratch,
            unread: Vec::new(),
            taken: 0,
            at_end: false,
            is_gone: false,
            ending,
            knows_of_ending: false,
            pending,
            last_close: LastClose::default(),
            _in_use: in_use,
        })
    }

    /// Hands over bytes of the client; returns how many were taken.
    fn offer(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8]) -> usize) -> usize {
        let taken = take(bytes);
        if let Some(pending) = &mut self.pending {
            pending.client_sent(bytes.get(..taken).unwrap_or_default());
        }
        taken
    }

    fn has_unread(&self) -> bool {
        self.taken < self.unread.len()
    }

    /// Sends what the socket takes.
    fn send(&mut self, bytes: &[u8]) -> usize {
        self.socket.write(bytes).unwrap_or_else(|_| {
            self.is_gone = true;
            0
        })
    }

    /// Answers the requests that nobody will answer any more.
    async fn refuse_the_rest(&mut self) {
        let came = Cell::new(0);
        while came.get() < MOST_REFUSED && !self.is_gone {
            let before = came.get();
            self.read(|bytes| {
                came.set(came.get() + bytes.len());
                bytes.len()
            });
            if came.get() == before {
                break;
            }
        }
        let Some(mut refuser) = self.pending.take().and_then(PendingRequests::refuse) else {
            return;
        };
        while !refuser.to_client().is_empty() && !self.is_closed() {
            let count = self.send(refuser.to_client());
            refuser.client_took(count);
            if count == 0 {
                self.changed().await;
            }
        }
    }
}

impl Client for PassedClient {
    const LINGER: Duration = Duration::from_secs(2);

    async fn changed(&mut self) {
        tokio::select! {
            changed = self.socket.changed() => self.is_gone |= changed.is_err(),
            () = self.ending.wait(), if !self.knows_of_ending => self.knows_of_ending = true,
        }
    }

    fn read(&mut self, mut take: impl FnMut(&[u8]) -> usize) {
        if self.has_unread() {
            let unread = std::mem::take(&mut self.unread);
            self.taken += self.offer(unread.get(self.taken..).unwrap_or_default(), &mut take);
            if self.taken < unread.len() {
                self.unread = unread;
            }
            return;
        }
        self.is_gone |= is_closing_slow();
        if self.at_end || self.is_gone {
            return;
        }
        let scratch = Rc::clone(&self.scratch);
        let mut scratch = scratch.borrow_mut();
        let mut descriptors = Vec::new();
        let read = self.socket.read_with_descriptors(&mut scratch, &mut descriptors);
        if !descriptors.is_empty() {
            // No client of an agent sends any.
            close_elsewhere(descriptors);
            self.is_gone = true;
            return;
        }
        match read {
            Ok(ReadOutcome::Bytes(count)) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                let taken = self.offer(bytes, &mut take);
                self.unread = bytes.get(taken..).unwrap_or_default().to_vec();
                self.taken = 0;
            }
            Ok(ReadOutcome::Nothing) => {}
            Ok(ReadOutcome::End) => self.at_end = true,
            Err(_) => self.is_gone = true,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let count = self.send(bytes);
        if let Some(pending) = &mut self.pending {
            pending.agent_sent(bytes.get(..count).unwrap_or_default());
        }
        count
    }

    fn is_finished(&self) -> bool {
        self.at_end && !self.has_unread()
    }

    fn is_closed(&self) -> bool {
        self.is_gone || self.socket.hung_up()
    }

    fn is_ending(&self) -> bool {
        self.ending.is_set()
    }

    async fn close(&mut self) {
        if self.pending.is_some() {
            self.refuse_the_rest().await;
        }
    }
}

impl Drop for PassedClient {
    fn drop(&mut self) {
        // Closing alone doesn't end it: the helper can have a duplicate.
        let _ = self.socket.shutdown();
        if has_unread(&self.socket) {
            self.last_close.0 = self.socket.as_fd().try_clone_to_owned().ok();
        }
    }
}

/// Serves the clients that the helper passes, until it passes none any more, breaks the rules or the bridge
/// ends. `is_passing` says whether it goes on.
pub(super) async fn receive(
    mut clients: PassedClients,
    admission: Rc<Admission>,
    is_passing: Rc<Cell<bool>>,
) {
    is_passing.set(true);
    let ending = admission.ending().clone();
    let receiving = async {
        loop {
            // Also for those that aren't served. What comes faster waits in the socket, and then in the helper.
            if let Some(begin) = admission.slot(Instant::now()) {
                tokio::time::sleep_until(begin.into()).await;
            }
            match clients.next().await {
                Ok(Passed::Client(client, lane)) => admission.passed(client, lane),
                Ok(Passed::NotServed) => {}
                Ok(Passed::End) => return tracing::debug!("the helper passes no more clients"),
                Err(error) => {
                    return tracing::info!("clients are no longer passed to the host: {error}");
                }
            }
        }
    };
    ending.unless_set(receiving).await;
    is_passing.set(false);
}
