//! Moves bytes between one agent session and its socket.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use keybridge_link::{SendQueue, is_transient};
use keybridge_proto::session::Session;
use tokio::io::Interest;

use super::AgentStream;

/// The size of a read: several lines, and little enough for hundreds of connections.
const READ_SIZE: usize = 4 * 1024;

/// The size of a read once one was full, since more data follows then.
const BULK_READ_SIZE: usize = 32 * 1024;

/// The agent's socket of one session, owned by the task of that session.
pub struct AgentConnection {
    stream: AgentStream,
    buffer: Vec<u8>,
    /// The part of the buffer that the session hasn't taken yet.
    unread: std::ops::Range<usize>,
    end: End,
}

/// Whether the agent has closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The agent closed it, or it failed.
    Closed {
        had_error: bool,
    },
}

impl fmt::Debug for AgentConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was read may be secret.
        let Self { stream, buffer: _, unread, end } = self;
        let mut fields = formatter.debug_struct("AgentConnection");
        fields.field("stream", stream).field("unread", unread).field("end", end);
        fields.finish_non_exhaustive()
    }
}

impl AgentConnection {
    /// A connection on which nothing was read or written yet.
    pub fn new(stream: AgentStream) -> Self {
        Self { stream, buffer: vec![0; READ_SIZE], unread: 0..0, end: End::Open }
    }

    /// Has small messages wait in a queue while it is open.
    pub(crate) fn with_queue(mut self, queue: Option<&SendQueue>) -> Self {
        if let Some(queue) = queue {
            self.stream.join(queue);
        }
        self
    }

    /// Moves what can be moved without waiting. True if anything moved.
    pub fn pump(&mut self, session: &mut impl Session, now: Instant) -> bool {
        let mut moved = false;
        while self.write(session, now) | self.read(session) {
            moved = true;
        }
        moved
    }

    /// What [`Self::pump`] waits for; `None` if it waits for the session.
    pub fn waits_for(&self, session: &impl Session) -> Option<Interest> {
        match (!session.to_agent().is_empty(), self.wants_to_read(session)) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::WRITABLE),
            (false, true) => Some(Interest::READABLE),
            (false, false) => None,
        }
    }

    /// Waits for what [`Self::waits_for`] returned, forever for `None`. Safe to cancel.
    pub async fn ready(&mut self, interest: Option<Interest>) {
        poll_fn(|context| self.poll_ready(interest, context)).await;
    }

    /// Ready when there is what [`Self::waits_for`] returned, or the connection has failed.
    pub(crate) fn poll_ready(
        &mut self,
        interest: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.has_failed() {
            return Poll::Pending;
        }
        self.stream.poll_ready(interest, context).map(|ready| {
            if let Err(error) = ready {
                tracing::debug!(%error, "waiting for the agent");
                self.end = End::Closed { had_error: true };
            }
        })
    }

    fn has_failed(&self) -> bool {
        self.end == End::Closed { had_error: true }
    }

    fn wants_to_read(&self, session: &impl Session) -> bool {
        self.end == End::Open && self.unread.is_empty() && session.takes_agent_bytes()
    }

    fn write(&mut self, session: &mut impl Session, now: Instant) -> bool {
        if session.to_agent().is_empty() {
            return false;
        }
        if self.has_failed() {
            session.agent_closed(true);
            return false;
        }
        match self.stream.try_write(session.to_agent()) {
            Ok(count) => {
                session.agent_took(count, now);
                count > 0
            }
            Err(error) if is_transient(&error) => false,
            Err(error) => {
                tracing::debug!(%error, "writing to the agent");
                self.end = End::Closed { had_error: true };
                session.agent_closed(true);
                true
            }
        }
    }

    fn read(&mut self, session: &mut impl Session) -> bool {
        let mut moved = false;
        if self.wants_to_read(session) {
            match self.stream.try_read(&mut self.buffer) {
                Ok(0) => self.end = End::Closed { had_error: false },
                Ok(count) => {
                    self.unread = 0..count;
                    if count == READ_SIZE && self.buffer.len() == READ_SIZE {
                        self.buffer.reserve_exact(BULK_READ_SIZE - READ_SIZE);
                        self.buffer.resize(BULK_READ_SIZE, 0);
                    }
                }
                Err(error) if is_transient(&error) => return false,
                Err(error) => {
                    tracing::debug!(%error, "reading from the agent");
                    self.end = End::Closed { had_error: true };
                }
            }
            moved = true;
        }
        if !self.unread.is_empty() && session.takes_agent_bytes() {
            let taken =
                session.agent_bytes(self.buffer.get(self.unread.clone()).unwrap_or_default());
            self.unread.start = (self.unread.start + taken).min(self.unread.end);
            moved |= taken > 0;
        }
        if let End::Closed { had_error } = self.end
            && self.unread.is_empty()
        {
            // Has no effect after the first call.
            session.agent_closed(had_error);
        }
        moved
    }
}

/// Waits for a deadline, forever if there is none.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    crate::platform::tests_on_unix! {
        use std::sync::Arc;

        use keybridge_link::LocalSocket;
        use keybridge_proto::gate::Policy;
        use keybridge_proto::session::{AgentSession, Limits};
        use keybridge_proto::socket_file::Opening;
        use tokio::net::UnixStream;
        use tokio::runtime::{Builder, LocalOptions};
        use tokio::task::yield_now;

        use super::*;
        use crate::platform::send_queue;

        /// Runs a test with a connection to an agent, and the agent's end of it.
        fn with_agent(test: impl AsyncFnOnce(AgentConnection, UnixStream)) {
            let runtime =
                Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            runtime.unwrap().block_on(async {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let socket = AgentStream::Local(LocalSocket::new(ours).unwrap());
                test(AgentConnection::new(socket), theirs).await;
            });
        }

        #[test]
        fn a_connection_has_failed_when_a_message_that_waited_is_lost() {
            let Some(queue) = send_queue() else { return };
            queue.set_open(true);
            with_agent(async |agent, theirs| {
                let mut agent = agent.with_queue(Some(&queue));
                agent.stream.try_write(b"NOP\n").unwrap();
                drop(theirs);
                yield_now().await;
                assert!(!agent.has_failed());
                // Also while the session waits for its client alone.
                agent.ready(None).await;
                assert!(agent.has_failed());
            });
        }

        #[test]
        fn a_session_ends_with_its_agent_also_while_bytes_of_that_are_unread() {
            with_agent(async |mut agent, theirs| {
                let policy = Policy::default();
                let mut session = AgentSession::new(policy, Arc::default(), Limits::default());
                session.connect_requested(Instant::now());
                session.agent_connected(Opening::none(), Instant::now());
                // After the greeting the session asks something itself, for which there is no room.
                while agent.stream.try_write(&[b'#'; 4096]).is_ok() {}
                theirs.try_write(b"OK\nOK too early\n").unwrap();
                agent.ready(Some(Interest::READABLE)).await;
                agent.pump(&mut session, Instant::now());
                assert!(!session.to_agent().is_empty() && !agent.unread.is_empty());
                agent.end = End::Closed { had_error: true };
                agent.pump(&mut session, Instant::now());
                assert!(session.is_over());
            });
        }
    }
}
