//! The ssh lane: bytes pass between a client and its stream as they come, in order and unchanged, for
//! the whole life of the connection. What is unanswered when the stream ends gets a failure.

use std::rc::Rc;

use keybridge_link::Stream;
use keybridge_proto::Lane;
use keybridge_proto::ssh::{PendingRequests, RefusingAgent};
use tokio::time::timeout;

use super::{Common, FAREWELL_TIME};
use crate::Stopping;
use crate::client_socket::{ClientSocket, Found};

/// Serves one client to its end.
pub(super) async fn serve(common: Common, stopping: Stopping, socket: ClientSocket) {
    let mut session =
        Session { common, stopping, socket, unread: Vec::new(), input: ClientInput::Open };
    let why = match session.common.open(Lane::Ssh).await {
        Ok(stream) => session.talk(stream).await,
        Err(error) => {
            tracing::debug!(%error, "no way to the agent");
            session.refuse(RefusingAgent::default()).await
        }
    };
    if let Err(error) = session.socket.shutdown() {
        tracing::debug!(%error, "closing a client's socket");
    }
    tracing::debug!(?why, "ended");
}

/// One client's session, owned by its task.
struct Session {
    common: Common,
    stopping: Stopping,
    socket: ClientSocket,
    /// Bytes that were read and have gone nowhere yet.
    unread: Vec<u8>,
    input: ClientInput,
}

/// Whether more can come from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientInput {
    Open,
    /// Its end was read.
    AtEnd,
    /// The end was told to whoever is at the other side.
    EndTold,
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
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

impl Session {
    /// Moves bytes until there is a reason to end, and settles what is unanswered then.
    async fn talk(&mut self, stream: Stream) -> End {
        let mut passage = PendingRequests::default();
        let end = self.pass(&stream, &mut passage).await;
        drop(stream);
        match end {
            End::Done | End::ClientGone => {}
            // A client that comes again may find an agent.
            End::AgentGone | End::Stopping => {
                if let Some(refuser) = passage.refuse() {
                    self.settle(refuser).await;
                }
            }
            End::LinkDown => {
                if let Some(refuser) = passage.refuse() {
                    return self.refuse(refuser).await;
                }
            }
        }
        end
    }

    async fn pass(&mut self, stream: &Stream, passage: &mut PendingRequests) -> End {
        loop {
            loop {
                let Some(answered) = self.stream_to_client(stream, passage) else {
                    return End::ClientGone;
                };
                let Some(asked) = self.client_to_stream(stream, passage) else {
                    return End::ClientGone;
                };
                if !answered && !asked {
                    break;
                }
            }
            if self.input != ClientInput::Open && self.unread.is_empty() {
                if !passage.is_busy() {
                    return End::Done;
                }
                if self.input == ClientInput::AtEnd {
                    self.input = ClientInput::EndTold;
                    stream.finish();
                }
            }
            if stream.is_closed() || stream.is_finished() {
                return if self.common.link.is_over() { End::LinkDown } else { End::AgentGone };
            }
            tokio::select! {
                changed = self.socket.changed() => {
                    if changed.is_err() || self.socket.hung_up() {
                        return End::ClientGone;
                    }
                }
                () = stream.changed() => {}
                () = self.stopping.wait() => return End::Stopping,
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
        let scratch = Rc::clone(&self.common.scratch);
        let mut scratch = scratch.borrow_mut();
        match self.socket.read(&mut scratch).ok()? {
            Found::Nothing => Some(false),
            Found::Bytes(count) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                let taken = take(bytes);
                self.unread = bytes.get(taken..).unwrap_or_default().to_vec();
                Some(true)
            }
            Found::End => {
                self.input = ClientInput::AtEnd;
                Some(true)
            }
        }
    }

    /// Refuses each request for as long as the client stays.
    async fn refuse(&mut self, mut refuser: RefusingAgent) -> End {
        loop {
            let Some(answered) = self.refuser_to_client(&mut refuser) else {
                return End::ClientGone;
            };
            let asked = if refuser.takes_client_bytes() {
                self.take_from_client(|bytes| refuser.client_bytes(bytes))
            } else {
                Some(false)
            };
            let Some(asked) = asked else { return End::ClientGone };
            if self.input == ClientInput::AtEnd && self.unread.is_empty() {
                self.input = ClientInput::EndTold;
                refuser.client_eof();
                continue;
            }
            if refuser.is_over() && refuser.to_client().is_empty() {
                return End::Done;
            }
            if answered || asked {
                continue;
            }
            tokio::select! {
                changed = self.socket.changed() => {
                    if changed.is_err() || self.socket.hung_up() {
                        return End::ClientGone;
                    }
                }
                () = self.stopping.wait() => {
                    self.settle(refuser).await;
                    return End::Stopping;
                }
            }
        }
    }

    /// Sends the failures that the client is owed. One that doesn't read them is not waited for.
    async fn settle(&mut self, mut refuser: RefusingAgent) {
        let paying = async {
            while !refuser.to_client().is_empty() && !self.socket.hung_up() {
                match self.refuser_to_client(&mut refuser) {
                    Some(true) => {}
                    Some(false) if self.socket.changed().await.is_ok() => {}
                    Some(false) | None => return,
                }
            }
        };
        if timeout(FAREWELL_TIME, paying).await.is_err() {
            tracing::debug!("the client didn't read to the end");
        }
    }

    fn refuser_to_client(&mut self, refuser: &mut RefusingAgent) -> Option<bool> {
        let count = self.socket.write(refuser.to_client()).ok()?;
        refuser.client_took(count);
        Some(count > 0)
    }
}
