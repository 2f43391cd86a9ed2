//! Sessions that have come to a state.

use std::sync::Arc;
use std::time::Instant;

use crate::chain::GREETING;
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{AgentSession, Limits, RequestSession, Session, agent, request};
use keybridge_proto::socket_file::Opening;

pub const LIVE: [request::State; 7] = [
    request::State::ConnectingToAgent,
    request::State::Ready,
    request::State::BufferingCommand,
    request::State::BufferingInquire,
    request::State::SendingToAgent,
    request::State::WaitingForAgent,
    request::State::SendingToClient,
];

/// A request session that was led to a state by what happens there.
pub fn session_in(state: request::State) -> RequestSession {
    use request::State as S;
    let now = Instant::now();
    let mut session = RequestSession::new(Limits::default());
    session.client_connected(now);
    session.agent_connected(now);
    if state != S::ConnectingToAgent {
        session.agent_bytes(GREETING);
        session.client_took(GREETING.len());
    }
    match state {
        S::ConnectingToAgent | S::Ready => {}
        S::BufferingCommand => assert_eq!(session.client_bytes(b"GETI"), 4),
        S::BufferingInquire => {
            session.client_bytes(b"PKDECRYPT\n");
            session.agent_took(10, now);
            session.agent_bytes(b"INQUIRE X\n");
            session.client_took(10);
        }
        S::SendingToAgent => assert_eq!(session.client_bytes(b"NOP\n"), 4),
        S::WaitingForAgent | S::SendingToClient => {
            session.client_bytes(b"NOP\n");
            session.agent_took(4, now);
            if state == S::SendingToClient {
                session.agent_bytes(b"OK\n");
            }
        }
        S::Disconnected | S::Error | S::Closing | S::Fatal => panic!("{state:?} is not live"),
    }
    assert_eq!(session.state(), state);
    session
}

/// An agent session that was led to a state by what happens there. `SocketConnected` and `Error` are
/// passed within one call and can't be seen from outside.
pub fn agent_in(state: agent::State) -> AgentSession {
    use agent::State as S;
    let now = Instant::now();
    let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    session.connect_requested(now);
    if state != S::ConnectingToAgent {
        session.agent_connected(Opening::none(), now);
        session.agent_bytes(GREETING);
        session.agent_took(usize::MAX, now);
        session.agent_bytes(b"OK\n");
        session.client_took(GREETING.len());
    }
    match state {
        S::ConnectingToAgent | S::Ready => {}
        S::SendingToAgent => assert_eq!(session.client_bytes(b"NOP\n"), 4),
        S::WaitingForAgent => {
            session.client_bytes(b"NOP\n");
            session.agent_took(4, now);
        }
        S::SocketConnected | S::Disconnected | S::Error | S::Closing | S::Fatal => {
            panic!("{state:?} can't be led to")
        }
    }
    assert_eq!(session.state(), state);
    session
}
