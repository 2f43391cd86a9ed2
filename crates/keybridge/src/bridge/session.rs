//! One client in the target, and its own connection to the agent of its lane.

use std::cell::Cell;
use std::fmt::Display;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use keybridge_link::{SendQueue, Stream};
use keybridge_proto::session::{AgentSession, Session};
use keybridge_proto::ssh::{self, RefusingAgent};

use super::client::Client;
use super::stats::LaneCounter;
use super::turns::{Conversation, is_crowded};
use crate::agent::{AgentConnection, AgentDialer, AgentStream, KeyList, SshDialer, until};

/// How long a client may take to read what is left for it when its session ends.
const LINGER: Duration = Duration::from_secs(10);

/// How often bytes are moved before other tasks get their turn. A client whose own connection is read can
/// write as fast as it is read.
const MOST_ROUNDS: usize = 16;

/// Serves one client of the gpg lane from its first byte to its end. Clients share nothing here but the queue.
pub(super) async fn serve(
    mut client: impl Client,
    mut session: AgentSession,
    dialer: &AgentDialer,
    counter: &LaneCounter,
    send_queue: Option<&SendQueue>,
) {
    session.connect_requested(Instant::now());
    let reached = reach(&mut client, &mut session, dialer.dial()).await;
    let agent = reached.map(|(socket, opening)| {
        session.agent_connected(opening, Instant::now());
        AgentConnection::new(socket).with_queue(send_queue)
    });
    carry(&mut client, &mut session, agent, counter, send_queue).await;
}

/// Serves one client of the ssh lane. Without an agent, each of its requests is refused.
pub(super) async fn serve_ssh(
    mut client: impl Client,
    mut session: ssh::SshSession,
    dialer: Option<&SshDialer>,
    counter: &LaneCounter,
    send_queue: Option<&SendQueue>,
) {
    session.connect_requested(Instant::now());
    let reached = if let Some(dialer) = dialer {
        reach(&mut client, &mut session, dialer.dial()).await
    } else {
        session.agent_unreachable("no ssh-agent is lent");
        None
    };
    let mut agent = None;
    if let Some(mut socket) = reached
        && choose_keys(&mut client, &mut session, &mut socket).await
    {
        session.agent_connected();
        agent = Some(AgentConnection::new(socket).with_queue(send_queue));
    }
    carry(&mut client, &mut session, agent, counter, send_queue).await;
}

/// Lists the agent's keys if some are chosen by their comments, to resolve these. This happens before
/// anything is read from the client, so that the client can't influence it. False if the session goes on
/// without the agent, or is over.
async fn choose_keys(
    client: &mut impl Client,
    session: &mut ssh::SshSession,
    socket: &mut AgentStream,
) -> bool {
    if !session.keys().has_comments() {
        return true;
    }
    let deadline = session.limits().response.map(|limit| Instant::now() + limit);
    let mut asking = std::pin::pin!(KeyList::ask(socket));
    loop {
        if client.is_closed() {
            session.client_closed(false);
            return false;
        }
        if client.is_ending() {
            session.agent_unreachable("the bridge ends");
            return false;
        }
        let problem = tokio::select! {
            asked = &mut asking => match asked {
                Ok(list) => {
                    session.choose_keys(&list.identities());
                    return true;
                }
                Err(error) => error.to_string(),
            },
            () = until(deadline) => "it doesn't list its keys in time".to_owned(),
            () = client.changed() => continue,
        };
        session.agent_unreachable(problem);
        return false;
    }
}

/// Dials the agent within the session's deadline. `None` if the session goes on without it, or is over.
async fn reach<T, E: Display>(
    client: &mut impl Client,
    session: &mut impl Session,
    dial: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    let deadline = session.deadline();
    let mut dial = std::pin::pin!(dial);
    loop {
        if client.is_closed() {
            session.client_closed(false);
            return None;
        }
        if client.is_ending() {
            session.agent_unreachable("the bridge ends");
            return None;
        }
        tokio::select! {
            dialled = &mut dial => return match dialled {
                Ok(dialled) => Some(dialled),
                Err(error) => {
                    tracing::debug!(%error, "the agent can't be reached");
                    session.agent_unreachable(error.to_string());
                    None
                }
            },
            () = client.changed() => {}
            () = until(deadline) => {
                session.timeout(deadline.unwrap_or_else(Instant::now));
                return None;
            }
        }
    }
}

/// Moves the bytes of a session until it is over, then cleans up.
async fn carry(
    client: &mut impl Client,
    session: &mut impl Session,
    agent: Option<AgentConnection>,
    counter: &LaneCounter,
    send_queue: Option<&SendQueue>,
) {
    // This closes the connection to the agent, before the last bytes go to the client.
    talk(client, session, agent, counter, send_queue).await;
    let ending = session.cleanup();
    debug_assert!(ending.is_some(), "a session that is over has something to clean up");
    let outcome = end(client, session, counter).await;
    session.cleanup_done(outcome);
    let state = session.state();
    match session.error() {
        Some(error) if counter.may_warn(Instant::now()) => {
            tracing::info!(%error, ?state, "a session failed");
        }
        Some(error) => tracing::debug!(%error, ?state, "a session failed"),
        None => tracing::debug!(?state, "the session ended"),
    }
}

/// Moves bytes both ways until the session is to be cleaned up.
async fn talk(
    client: &mut impl Client,
    session: &mut impl Session,
    mut agent: Option<AgentConnection>,
    counter: &LaneCounter,
    send_queue: Option<&SendQueue>,
) {
    let conversation = Conversation::new();
    let mut client_has_ended = false;
    loop {
        let now = Instant::now();
        session.timeout(now);
        if let Some(queue) = send_queue {
            queue.set_open(is_crowded());
        }
        let mut rounds = 0;
        while rounds < MOST_ROUNDS
            && (take_from_client(client, session, counter)
                | agent.as_mut().is_some_and(|agent| agent.pump(session, now))
                | give_to_client(client, session, counter))
        {
            rounds += 1;
            conversation.moved();
        }
        if !client_has_ended && client.is_finished() {
            client_has_ended = true;
            session.client_eof();
        }
        if client.is_closed() {
            session.client_closed(false);
        }
        if client.is_ending() {
            session.agent_closed(false);
        }
        if session.is_over() {
            return;
        }
        if rounds == MOST_ROUNDS {
            tokio::task::yield_now().await;
            continue;
        }
        let awaited = agent.as_ref().and_then(|agent| agent.waits_for(session));
        let mut deadline = std::pin::pin!(until(session.deadline()));
        poll_fn(|context| {
            // First, so that what a client has sent before its agent went is read and answered.
            if client.poll_changed(context).is_ready() {
                return Poll::Ready(());
            }
            if let Some(agent) = &mut agent
                && agent.poll_ready(awaited, context).is_ready()
            {
                return Poll::Ready(());
            }
            deadline.as_mut().poll(context)
        })
        .await;
    }
}

/// Sends the client what is left, and waits for it to read that before its connection is closed.
async fn end(
    client: &mut impl Client,
    session: &mut impl Session,
    counter: &LaneCounter,
) -> Result<(), &'static str> {
    let all_taken = Cell::new(false);
    let ending = async {
        loop {
            give_to_client(client, session, counter);
            if session.to_client().is_empty() && client.flush() || client.is_closed() {
                break;
            }
            client.changed().await;
        }
        all_taken.set(true);
        client.close().await;
    };
    match tokio::time::timeout(LINGER, ending).await {
        Ok(()) => Ok(()),
        Err(_) if all_taken.get() => Ok(()),
        Err(_) => Err("the client didn't take its last answer"),
    }
}

/// Sends a client of the gpg lane a reply in place of the greeting.
pub(super) async fn refuse(mut client: impl Client, reply: &[u8]) {
    let ending = async {
        let mut rest = reply;
        while !rest.is_empty() && !client.is_closed() {
            rest = rest.get(client.write(rest)..).unwrap_or_default();
            if !rest.is_empty() {
                client.changed().await;
            }
        }
        client.close().await;
    };
    // Dropping the client closes its connection in any case.
    let _ = tokio::time::timeout(LINGER, ending).await;
}

/// Refuses each request of a client of the ssh lane, since there are too many.
pub(super) async fn refuse_ssh(stream: Stream) {
    let mut refuser = RefusingAgent::default();
    let refusing = async {
        while !stream.is_closed() {
            if refuser.takes_client_bytes() {
                stream.read(|bytes| refuser.client_bytes(bytes));
            }
            refuser.client_took(stream.write(refuser.to_client()));
            if refuser.to_client().is_empty() && (refuser.is_over() || stream.is_finished()) {
                stream.finish();
            }
            stream.changed().await;
        }
    };
    // Dropping the stream closes it in any case.
    let _ = tokio::time::timeout(LINGER, refusing).await;
}

fn take_from_client(
    client: &mut impl Client,
    session: &mut impl Session,
    counter: &LaneCounter,
) -> bool {
    let mut taken = 0;
    if session.takes_client_bytes() {
        client.read(|bytes| {
            let count = session.client_bytes(bytes);
            taken += count;
            count
        });
    }
    counter.took_in(taken);
    taken > 0
}

fn give_to_client(
    client: &mut impl Client,
    session: &mut impl Session,
    counter: &LaneCounter,
) -> bool {
    let given = client.write(session.to_client());
    session.client_took(given);
    counter.gave_out(given);
    given > 0
}
