//! One stream of the gpg lane: a client in the target, and its own connection to the agent.

use std::cell::Cell;
use std::time::{Duration, Instant};

use keybridge_link::Stream;
use keybridge_proto::session::AgentSession;

use super::stats::LaneCounter;
use crate::agent::{AgentConnection, AgentDialer};

/// How long a stream that is over waits for the helper to close it.
const LINGER: Duration = Duration::from_secs(10);

/// Serves one client from its first byte to its end. Nothing here is shared with another one.
pub(super) async fn serve(
    stream: Stream,
    mut session: AgentSession,
    dialer: &AgentDialer,
    counter: &LaneCounter,
) {
    session.connect_requested(Instant::now());
    let agent = connect(&stream, &mut session, dialer).await;
    if let Some(mut agent) = agent {
        talk(&stream, &mut session, &mut agent, counter).await;
        // The agent's connection is closed here, before the client is waited for.
    }
    let ending = session.cleanup();
    debug_assert!(ending.is_some(), "a session that is over has something to clean up");
    let outcome = end(&stream, &mut session, counter).await;
    session.cleanup_done(outcome);
    let error = session.error().map(tracing::field::display);
    tracing::debug!(error, state = %session.state(), "the session ended");
}

/// Dials the agent within the session's deadline. None if the session is over instead.
async fn connect(
    stream: &Stream,
    session: &mut AgentSession,
    dialer: &AgentDialer,
) -> Option<AgentConnection> {
    let deadline = session.deadline();
    let mut dial = std::pin::pin!(dialer.dial());
    loop {
        if stream.is_closed() {
            session.client_closed(false);
            return None;
        }
        tokio::select! {
            dialled = &mut dial => return match dialled {
                Ok((socket, opening)) => {
                    session.agent_connected(opening, Instant::now());
                    Some(AgentConnection::new(socket))
                }
                Err(error) => {
                    tracing::debug!(%error, "the agent can't be reached");
                    session.agent_unreachable(error.to_string());
                    None
                }
            },
            () = stream.changed() => {}
            () = until(deadline) => {
                session.timeout(deadline.unwrap_or_else(Instant::now));
                return None;
            }
        }
    }
}

/// Moves bytes both ways until the session is to be cleaned up.
async fn talk(
    stream: &Stream,
    session: &mut AgentSession,
    agent: &mut AgentConnection,
    counter: &LaneCounter,
) {
    let mut client_has_ended = false;
    loop {
        let now = Instant::now();
        session.timeout(now);
        while take_from_client(stream, session, counter)
            | agent.pump(session, now)
            | give_to_client(stream, session, counter)
        {}
        if !client_has_ended && stream.is_finished() {
            client_has_ended = true;
            session.client_eof();
        }
        if stream.is_closed() {
            session.client_closed(false);
        }
        if is_over(session) {
            return;
        }
        tokio::select! {
            () = agent.ready(agent.waits_for(session)) => {}
            () = stream.changed() => {}
            () = until(session.deadline()) => {}
        }
    }
}

/// Sends what is left for the client, and lets it read that before the stream goes.
async fn end(
    stream: &Stream,
    session: &mut AgentSession,
    counter: &LaneCounter,
) -> Result<(), &'static str> {
    let all_taken = Cell::new(false);
    let ending = async {
        loop {
            give_to_client(stream, session, counter);
            if session.to_client().is_empty() || stream.is_closed() {
                break;
            }
            stream.changed().await;
        }
        all_taken.set(true);
        stream.finish();
        while !stream.is_closed() {
            stream.changed().await;
        }
    };
    match tokio::time::timeout(LINGER, ending).await {
        Ok(()) => Ok(()),
        Err(_) if all_taken.get() => Ok(()),
        Err(_) => Err("the client didn't take its last answer"),
    }
}

/// Tells a client that there are too many, and lets it read that.
pub(super) async fn refuse(stream: Stream, reply: &[u8]) {
    let ending = async {
        if stream.write_all(reply).await {
            stream.finish();
            while !stream.is_closed() {
                stream.changed().await;
            }
        }
    };
    // The stream is closed either way.
    let _ = tokio::time::timeout(LINGER, ending).await;
}

fn take_from_client(stream: &Stream, session: &mut AgentSession, counter: &LaneCounter) -> bool {
    let mut taken = 0;
    if session.takes_client_bytes() {
        stream.read(|bytes| {
            let count = session.client_bytes(bytes);
            taken += count;
            count
        });
    }
    counter.took_in(taken);
    taken > 0
}

fn give_to_client(stream: &Stream, session: &mut AgentSession, counter: &LaneCounter) -> bool {
    let given = stream.write(session.to_client());
    session.client_took(given);
    counter.gave_out(given);
    given > 0
}

/// Whether nothing is left but to clean up.
fn is_over(session: &AgentSession) -> bool {
    use keybridge_proto::session::agent::State;
    match session.state() {
        State::Disconnected | State::Error | State::Closing | State::Fatal => true,
        State::ConnectingToAgent
        | State::SocketConnected
        | State::Ready
        | State::SendingToAgent
        | State::WaitingForAgent => false,
    }
}

/// Waits for a deadline, for ever if there is none.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
