//! The ssh lane: bytes are copied between a client and its stream, in order and unchanged, for the whole
//! life of the connection. Requests that are unanswered when the stream ends get a failure.

use std::rc::Rc;

use keybridge_link::{ClientSocket, ReadOutcome, Stream};
use keybridge_proto::Lane;
use keybridge_proto::ssh::{PendingRequests, RefusingAgent};
use tokio::time::timeout;

use super::session::{FAREWELL_TIME, SessionContext};
use crate::StopSignal;

/// Serves one client to its end.
pub(super) async fn serve(context: SessionContext, stop: StopSignal, socket: ClientSocket) {
    let mut session =
        SshSession { context, stop, socket, unread: Vec::new(), input: ClientInput::Open };
    let why = match session.context.open(Lane::Ssh).await {
        Ok(stream) => session.talk(stream).await,
        Err(error) => {
            tracing::debug!(%error, "can't reach the agent");
            session.refuse(RefusingAgent::default()).await
        }
    };
    if let Err(error) = session.socket.shutdown() {
        tracing::debug!(%error, "can't close a client's socket");
    }
    tracing::debug!(?why, "ended");
}

/// One client's session, owned by its task.
struct SshSession {
    context: SessionContext,
    stop: StopSignal,
    socket: ClientSocket,
    /// Bytes that were read but not forwarded yet.
    unread: Vec<u8>,
    input: ClientInput,
}

/// Whether more can come from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientInput {
    Open,
    /// Its end was read.
    AtEnd,
    /// The end was sent to the other side.
    EndTold,
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    /// The client has all its answers and wants no more.
    Done,
    /// The client hung up, or can't be written to.
    ClientGone,
    /// The host closed the stream: the agent at home has gone, or the lane is off there.
    AgentGone,
    /// The link is down.
    LinkDown,
    /// The lane stops.
    Stopping,
}

impl SshSession {
    /// Moves bytes until there is a reason to end, and settles what is unanswered then.
    async fn talk(&mut self, stream: Stream) -> EndReason {
        let mut passage = PendingRequests::default();
        let end = self.pass(&stream, &mut passage).await;
        drop(stream);
        match end {
            EndReason::Done | EndReason::ClientGone => {}
            // A client that comes again may find an agent.
            EndReason::AgentGone | EndReason::Stopping => {
                if let Some(refuser) = passage.refuse() {
                    self.settle(refuser).await;
                }
            }
            EndReason::LinkDown => {
                if let Some(refuser) = passage.refuse() {
                    return self.refuse(refuser).await;
                }
            }
        }
        end
    }

    async fn pass(&mut self, stream: &Stream, passage: &mut PendingRequests) -> EndReason {
        loop {
            loop {
                let Some(answered) = self.stream_to_client(stream, passage) else {
                    return EndReason::ClientGone;
                };
                let Some(asked) = self.client_to_stream(stream, passage) else {
                    return EndReason::ClientGone;
                };
                if !answered && !asked {
                    break;
                }
            }
            if self.input != ClientInput::Open && self.unread.is_empty() {
                if !passage.is_busy() {
                    return EndReason::Done;
                }
                if self.input == ClientInput::AtEnd {
                    self.input = ClientInput::EndTold;
                    stream.finish();
                }
            }
            if stream.is_closed() || stream.is_finished() {
                return if self.context.link.is_over() {
                    EndReason::LinkDown
                } else {
                    EndReason::AgentGone
                };
            }
            tokio::select! {
                changed = self.socket.changed() => {
                    if changed.is_err() || self.socket.hung_up() {
                        return EndReason::ClientGone;
                    }
                }
                () = stream.changed() => {}
                () = self.stop.wait() => return EndReason::Stopping,
            }
        }
    }

    /// Whether anything moved; nothing if the client can't be written to.
    fn stream_to_client(&mut self, stream: &Stream, passage: &mut PendingRequests) -> Option<bool> {
        let (mut moved, mut gone) = (false, false);
        stream.read(|bytes| {
            let count = self.socket.write(bytes).unwrap_or_else(|_| {
                gone = true;
                0
            });
            passage.agent_sent(bytes.get(..count).unwrap_or_default());
            moved |= count > 0;
            count
        });
        (!gone).then_some(moved)
    }

    /// Whether anything moved; nothing if the client can't be read from.
    fn client_to_stream(&mut self, stream: &Stream, passage: &mut PendingRequests) -> Option<bool> {
        self.take_from_client(|bytes| {
            let count = stream.write(bytes);
            passage.client_sent(bytes.get(..count).unwrap_or_default());
            count
        })
    }

    /// Hands over what the client has sent; what isn't taken is kept. Says whether anything moved;
    /// nothing if the client can't be read from.
    fn take_from_client(&mut self, mut take: impl FnMut(&[u8]) -> usize) -> Option<bool> {
        if !self.unread.is_empty() {
            let taken = take(&self.unread);
            self.unread = self.unread.get(taken..).unwrap_or_default().to_vec();
            return Some(taken > 0);
        }
        if self.input != ClientInput::Open {
            return Some(false);
        }
        let scratch = Rc::clone(&self.context.scratch);
        let mut scratch = scratch.borrow_mut();
        match self.socket.read(&mut scratch).ok()? {
            ReadOutcome::Nothing => Some(false),
            ReadOutcome::Bytes(count) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                let taken = take(bytes);
                self.unread = bytes.get(taken..).unwrap_or_default().to_vec();
                Some(true)
            }
            ReadOutcome::End => {
                self.input = ClientInput::AtEnd;
                Some(true)
            }
        }
    }

    /// Refuses each request for as long as the client stays.
    async fn refuse(&mut self, mut refuser: RefusingAgent) -> EndReason {
        loop {
            let Some(answered) = self.refuser_to_client(&mut refuser) else {
                return EndReason::ClientGone;
            };
            let asked = if refuser.takes_client_bytes() {
                self.take_from_client(|bytes| refuser.client_bytes(bytes))
            } else {
                Some(false)
            };
            let Some(asked) = asked else { return EndReason::ClientGone };
            if self.input == ClientInput::AtEnd && self.unread.is_empty() {
                self.input = ClientInput::EndTold;
                refuser.client_eof();
                continue;
            }
            if refuser.is_over() && refuser.to_client().is_empty() {
                return EndReason::Done;
            }
            if answered || asked {
                continue;
            }
            tokio::select! {
                changed = self.socket.changed() => {
                    if changed.is_err() || self.socket.hung_up() {
                        return EndReason::ClientGone;
                    }
                }
                () = self.stop.wait() => {
                    self.settle(refuser).await;
                    return EndReason::Stopping;
                }
            }
        }
    }

    /// Sends the failures that answer the requests left. A client that doesn't read them is not waited for.
    async fn settle(&mut self, mut refuser: RefusingAgent) {
        let sending = async {
            while !refuser.to_client().is_empty() && !self.socket.hung_up() {
                match self.refuser_to_client(&mut refuser) {
                    Some(true) => {}
                    Some(false) if self.socket.changed().await.is_ok() => {}
                    Some(false) | None => return,
                }
            }
        };
        if timeout(FAREWELL_TIME, sending).await.is_err() {
            tracing::debug!("the client didn't read the last answers");
        }
    }

    fn refuser_to_client(&mut self, refuser: &mut RefusingAgent) -> Option<bool> {
        let count = self.socket.write(refuser.to_client()).ok()?;
        refuser.client_took(count);
        Some(count > 0)
    }
}
