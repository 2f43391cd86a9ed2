//! A client whose own connection the helper has passed to us, in place of a stream of the mux.
//!
//! What the helper does for a client of a stream is done here. On the gpg lane the agent session does it
//! all. On the ssh lane, requests that are unanswered when the session ends get a failure.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use keybridge_link::{ReadOutcome, SendQueue, StopSignal};
use keybridge_proto::Lane;
use keybridge_proto::ssh::PendingRequests;

use super::admission::Admission;
use super::client::Client;
use crate::caller::CallerLookup;
use crate::platform::{PassedClients, PassedConnection, PassedSocket, Received};

/// What one read of a client takes: many lines. A pipelining client leaves at most that much with us.
pub(super) const READ_SIZE: usize = 32 * 1024;

/// How many bytes of early requests are read to be refused, as many as a stream would carry.
const MOST_REFUSED: usize = 256 * 1024;

/// One client's connection.
pub(super) struct PassedClient {
    connection: PassedConnection,
    /// Shared by all clients of a bridge.
    scratch: Rc<RefCell<Vec<u8>>>,
    /// Bytes that the session hasn't taken yet, from this one on.
    unread: Vec<u8>,
    taken: usize,
    at_end: bool,
    is_gone: bool,
    ending: StopSignal,
    until_ending: Pin<Box<dyn Future<Output = ()>>>,
    /// `changed` has told of the end.
    knows_of_ending: bool,
    /// The unanswered requests of the ssh lane.
    pending: Option<PendingRequests>,
}

impl PassedClient {
    pub(super) fn new(
        client: PassedSocket,
        lane: Lane,
        scratch: Rc<RefCell<Vec<u8>>>,
        send_queue: Option<&SendQueue>,
        ending: StopSignal,
    ) -> std::io::Result<Self> {
        let mut connection = PassedConnection::new(client)?;
        if let Some(send_queue) = send_queue {
            connection.join(send_queue);
        }
        let pending = match lane {
            Lane::Gpg => None,
            Lane::Ssh => Some(PendingRequests::default()),
        };
        Ok(Self {
            connection,
            scratch,
            unread: Vec::new(),
            taken: 0,
            at_end: false,
            is_gone: false,
            until_ending: Box::pin({
                let ending = ending.clone();
                async move { ending.wait().await }
            }),
            ending,
            knows_of_ending: false,
            pending,
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
        self.connection.write(bytes).unwrap_or_else(|_| {
            self.is_gone = true;
            0
        })
    }

    /// Refuses the requests that the agent has not answered.
    async fn refuse_the_rest(&mut self) {
        let mut total = 0;
        while total < MOST_REFUSED && !self.is_gone {
            let before = total;
            self.read(|bytes| {
                total += bytes.len();
                bytes.len()
            });
            if total == before {
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
    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(changed) = self.connection.poll_changed(context) {
            self.is_gone |= changed.is_err();
            return Poll::Ready(());
        }
        if !self.knows_of_ending && self.until_ending.as_mut().poll(context).is_ready() {
            self.knows_of_ending = true;
            return Poll::Ready(());
        }
        Poll::Pending
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
        if self.at_end || self.is_gone {
            return;
        }
        let scratch = Rc::clone(&self.scratch);
        let mut scratch = scratch.borrow_mut();
        match self.connection.read(&mut scratch) {
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

    fn flush(&self) -> bool {
        self.connection.flush()
    }

    fn is_finished(&self) -> bool {
        self.at_end && !self.has_unread()
    }

    fn is_closed(&self) -> bool {
        self.is_gone || self.connection.hung_up()
    }

    fn is_ending(&self) -> bool {
        self.ending.is_set()
    }

    async fn close(&mut self) {
        if self.pending.is_some() {
            self.refuse_the_rest().await;
        }
        while !self.flush() && !self.is_closed() {
            self.changed().await;
        }
    }
}

/// Serves the clients that the helper passes, until it passes none any more, breaks the rules or the bridge
/// ends. `is_passing` says whether it goes on.
pub(super) async fn receive(
    mut clients: PassedClients,
    callers: Option<CallerLookup>,
    admission: Rc<Admission>,
    is_passing: Rc<Cell<bool>>,
) {
    is_passing.set(true);
    tracing::info!("clients are passed to the host");
    let ending = admission.ending().clone();
    let receiving = async {
        loop {
            let received = match clients.next().await {
                Ok(received) => received,
                Err(error) => {
                    return tracing::info!("clients are no longer passed to the host: {error}");
                }
            };
            // What comes faster waits in the socket, and then in the helper.
            if let Some(begin) = admission.slot(Instant::now()) {
                tokio::time::sleep_until(begin.into()).await;
            }
            match received {
                Received::Client(client, lane) => admission.passed(client, lane, callers.as_ref()),
                Received::Refused => {}
                Received::End => return tracing::debug!("the helper passes no more clients"),
            }
        }
    };
    ending.unless_set(receiving).await;
    is_passing.set(false);
}
