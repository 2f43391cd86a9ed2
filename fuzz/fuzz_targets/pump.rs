//! The pump between two sides that do anything, with each kind of session.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/keybridge-link/tests/link/scripted.rs"]
mod scripted;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use keybridge_link::pump;
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::{AgentSession, Limits, RequestSession, Session};
use keybridge_proto::socket_file::Opening;
use keybridge_proto::ssh::{RelaySession, SshSession};
use libfuzzer_sys::fuzz_target;
use scripted::{End, Scripted, Then};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

#[derive(Arbitrary, Debug)]
enum Kind {
    Request,
    Agent,
    Relay,
    Ssh,
}

#[derive(Arbitrary, Debug)]
enum Play<'a> {
    Says(&'a [u8]),
    Takes(u16),
    Ends,
    IsDeaf,
    Fails,
    HangsUp,
}

/// Two reads, and an outbox that takes one more of them when it is nearly full.
const MOST_HELD: usize = 80 * 1024;

const LINGER: Duration = Duration::from_secs(2);

fuzz_target!(|input: (Kind, Vec<(bool, Play<'_>)>)| {
    let (kind, plays) = input;
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), run(kind, plays));
});

async fn run(kind: Kind, plays: Vec<(bool, Play<'_>)>) {
    let now = tokio::time::Instant::now().into_std();
    let limits = Limits::default();
    match kind {
        Kind::Request => {
            let mut session = RequestSession::new(limits);
            session.client_connected(now);
            session.agent_connected(now);
            talk(session, plays, false).await;
        }
        Kind::Agent => {
            let policy = Policy { socket: AgentSocket::Main, ..Policy::default() };
            let mut session = AgentSession::new(policy, Arc::default(), limits);
            session.connect_requested(now);
            session.agent_connected(Opening::none(), now);
            talk(session, plays, false).await;
        }
        Kind::Relay => {
            let mut session = RelaySession::connected();
            session.agent_connected();
            talk(session, plays, true).await;
        }
        Kind::Ssh => {
            let mut session = SshSession::new(Policy::default(), limits);
            session.connect_requested(now);
            session.agent_connected();
            talk(session, plays, false).await;
        }
    }
}

async fn talk<S: Session + 'static>(mut session: S, plays: Vec<(bool, Play<'_>)>, relays: bool) {
    let (client, agent) = (End::default(), End::default());
    let (mut client_side, agent_side) = (Scripted(client.clone()), Scripted(agent.clone()));
    let task = spawn_local(async move {
        pump(&mut client_side, &mut session, Some(agent_side), pending(), LINGER).await;
        session
    });
    let mut said = Vec::new();
    for (by_client, play) in plays {
        let end = if by_client { &client } else { &agent };
        end.play(|script| match play {
            Play::Says(bytes) => {
                script.to_read.extend(bytes);
                said.extend_from_slice(if by_client { bytes } else { b"" });
            }
            Play::Takes(count) => script.room = script.room.saturating_add(count.into()),
            Play::Ends => script.then = Then::End,
            Play::IsDeaf => script.write_failure = Some(io::ErrorKind::BrokenPipe),
            Play::Fails => script.failure = Some(io::ErrorKind::ConnectionReset),
            Play::HangsUp => script.has_hung_up |= by_client,
        })
        .await;
        if relays && !agent.is_dropped() {
            let (from, to) = (client.0.borrow(), agent.0.borrow());
            assert!(said.starts_with(&to.written), "changed or out of order");
            assert!(from.read <= to.written.len() + MOST_HELD, "a flood is held");
        }
    }
    client.play(|script| script.has_hung_up = true).await;
    let session = timeout(LINGER * 2, task).await.expect("it ends in time").expect("no panic");
    assert!(session.is_over() && agent.is_dropped() && client.0.borrow().is_shut_down);
}
