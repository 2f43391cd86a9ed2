//! Sessions in virtual time: limits, greetings, cleanup, clients that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chain::{Chain, GREETING, KEY};
use crate::session_states::{agent_in, session_in};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{
    AgentSession, Cleanup, Limits, RequestSession, Session, SessionError, agent, request,
};
use keybridge_proto::socket_file::Opening;

const NO_AGENT: &[u8] = b"ERR 67108941 No agent running <GPG Agent>\n";
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn connecting_has_five_seconds_on_both_sides() {
    let now = Instant::now();
    let mut session = RequestSession::new(Limits::default());
    session.client_connected(now);
    assert_eq!(session.deadline(), Some(now + 5 * SECOND));
    session.timeout(now + 5 * SECOND - Duration::from_millis(1));
    assert_eq!(session.state(), request::State::ConnectingToAgent);
    session.timeout(now + 5 * SECOND);
    assert_eq!(session.error(), Some(&SessionError::ConnectTimeout(5 * SECOND)));
    assert_eq!(session.to_client(), NO_AGENT);
    assert_eq!(session.cleanup(), Some(Cleanup { had_error: true }));
    session.cleanup_done(Ok::<(), String>(()));
    assert_eq!(session.state(), request::State::Disconnected);

    let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    session.connect_requested(now);
    session.timeout(now + 5 * SECOND - Duration::from_millis(1));
    assert_eq!(session.state(), agent::State::ConnectingToAgent);
    session.timeout(now + 5 * SECOND);
    assert_eq!(session.error(), Some(&SessionError::ConnectTimeout(5 * SECOND)));
    assert_eq!(session.to_client(), NO_AGENT);
    assert_eq!(session.cleanup(), Some(Cleanup { had_error: true }));
    session.cleanup_done(Ok::<(), String>(()));
    assert_eq!(session.state(), agent::State::Disconnected);
}

#[test]
fn the_greeting_has_five_seconds_from_the_connection_on() {
    let start = Instant::now();
    let connected = start + 4 * SECOND;
    let mut session = RequestSession::new(Limits::default());
    session.client_connected(start);
    session.agent_connected(connected);
    session.timeout(connected + 4 * SECOND);
    assert_eq!(session.state(), request::State::ConnectingToAgent);
    session.timeout(connected + 5 * SECOND);
    assert_eq!(session.error(), Some(&SessionError::GreetingTimeout(5 * SECOND)));
    assert_eq!(session.to_client(), NO_AGENT);

    let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    session.connect_requested(start);
    session.agent_connected(Opening::none(), connected);
    session.timeout(connected + 4 * SECOND);
    assert_eq!(session.state(), agent::State::WaitingForAgent);
    // The proof that the socket is restricted has to come within the same limit.
    session.agent_bytes(GREETING);
    session.agent_took(usize::MAX, connected + 4 * SECOND);
    session.timeout(connected + 5 * SECOND);
    assert_eq!(session.error(), Some(&SessionError::GreetingTimeout(5 * SECOND)));
    assert_eq!(session.to_client(), NO_AGENT);
}

#[test]
fn a_response_after_an_hour_is_delivered() {
    let mut chain = Chain::greeted(Policy::default(), 8);
    chain.write(b"PKSIGN\n");
    assert_eq!(chain.read, b"S PROGRESS 1\n", "a status line isn't held back");
    assert_eq!(chain.request.deadline(), None);
    assert_eq!(chain.agent.deadline(), None);
    chain.pass(3600 * SECOND);
    chain.gpg_agent.out.extend_from_slice(b"D late\nOK\n");
    chain.run();
    assert_eq!(chain.read, b"S PROGRESS 1\nD late\nOK\n");
    assert_eq!(chain.request.state(), request::State::Ready);
}

#[test]
fn a_response_can_be_given_a_limit() {
    let limits = Limits { response: Some(60 * SECOND), ..Limits::default() };
    let mut chain = Chain::new(Policy::default(), 8);
    chain.request = RequestSession::new(limits);
    chain.request.client_connected(chain.now);
    chain.run();
    chain.write(format!("SETKEY {KEY}\n").as_bytes());
    chain.read.clear();
    chain.write(b"PKSIGN\n");
    chain.pass(59 * SECOND);
    assert_eq!(chain.request.state(), request::State::WaitingForAgent);
    chain.pass(SECOND);
    assert_eq!(chain.request.error(), Some(&SessionError::ResponseTimeout(60 * SECOND)));
    assert_eq!(chain.read, [b"S PROGRESS 1\n", NO_AGENT].concat());
    assert_eq!(chain.agent.state(), agent::State::Disconnected);
}

#[test]
fn a_response_can_be_given_a_limit_on_the_host_too() {
    let now = Instant::now();
    let limits = Limits { response: Some(60 * SECOND), ..Limits::default() };
    let mut session = AgentSession::new(Policy::default(), Arc::default(), limits);
    session.connect_requested(now);
    session.agent_connected(Opening::none(), now);
    session.agent_bytes(GREETING);
    session.agent_took(usize::MAX, now);
    session.agent_bytes(b"OK\n");
    assert_eq!(session.deadline(), None, "a client may take its time");
    session.client_took(usize::MAX);
    session.client_bytes(b"NOP\n");
    session.agent_took(usize::MAX, now);
    assert_eq!(session.deadline(), Some(now + 60 * SECOND));
    session.timeout(now + 60 * SECOND);
    assert_eq!(session.error(), Some(&SessionError::ResponseTimeout(60 * SECOND)));
    assert_eq!(session.to_client(), NO_AGENT);
}

#[test]
fn a_failed_cleanup_is_fatal_for_one_session_only() {
    let mut broken = session_in(request::State::WaitingForAgent);
    let mut other = Chain::greeted(Policy::default(), 4);
    broken.client_closed(false);
    assert_eq!(broken.cleanup(), Some(Cleanup { had_error: false }));
    assert_eq!(broken.cleanup(), None, "given once");
    broken.cleanup_done(Err("the socket would not close"));
    assert_eq!(broken.state(), request::State::Fatal);
    let error = broken.error().unwrap().to_string();
    assert_eq!(error, "closing the session: the socket would not close");
    // A fatal session passes everything over.
    for had_error in [false, true] {
        broken.client_closed(had_error);
        broken.agent_closed(had_error);
    }
    broken.client_eof();
    broken.timeout(Instant::now());
    broken.cleanup_done(Ok::<(), String>(()));
    assert_eq!(broken.client_bytes(b"NOP\n"), 0);
    assert_eq!(broken.state(), request::State::Fatal);

    let mut broken = agent_in(agent::State::WaitingForAgent);
    broken.agent_closed(true);
    assert_eq!(broken.cleanup(), Some(Cleanup { had_error: true }));
    broken.cleanup_done(Err("no"));
    for had_error in [false, true] {
        broken.client_closed(had_error);
        broken.agent_closed(had_error);
    }
    assert_eq!((broken.state(), broken.cleanup()), (agent::State::Fatal, None));
    assert_eq!(broken.error().unwrap().to_string(), "the agent's connection broke");

    other.write(b"NOP\n");
    assert_eq!(other.read, b"OK\n");
}

#[test]
fn an_agent_that_cannot_be_reached_is_told_as_no_agent() {
    let mut session = session_in(request::State::ConnectingToAgent);
    session.agent_unreachable("the link is down");
    assert_eq!(session.to_client(), NO_AGENT);
    let error = session.error().unwrap().to_string();
    assert_eq!(error, "the agent can't be reached: the link is down");
    let mut session = agent_in(agent::State::ConnectingToAgent);
    session.agent_unreachable("no such file");
    assert_eq!(session.to_client(), NO_AGENT);
    // Too late to matter.
    session.agent_connected(Opening::none(), Instant::now());
    assert_eq!(session.state(), agent::State::Closing);
}

#[test]
fn a_greeting_that_is_not_ok_is_an_error() {
    let cases: [(&[u8], &[u8], &str); 4] = [
        (
            b"ERR 67108941 x\n",
            b"ERR 67108941 x\n",
            "expected the greeting OK, got ERR 67108941 (source 4, code 77)",
        ),
        (b"ERR\n", b"ERR\n", "expected the greeting OK, got ERR without a code"),
        (
            b"SSH-2.0-OpenSSH\n",
            b"ERR 67109124 Invalid IPC response <GPG Agent>\n",
            "expected the greeting OK, got another line of 15 bytes",
        ),
        (
            b"S x\n",
            b"ERR 67109124 Invalid IPC response <GPG Agent>\n",
            "expected the greeting OK, got another line of 3 bytes",
        ),
    ];
    for (greeting, told, text) in cases {
        let mut session = session_in(request::State::ConnectingToAgent);
        assert_eq!(session.agent_bytes(greeting), greeting.len());
        assert_eq!(session.to_client(), told);
        assert_eq!(session.error().unwrap().to_string(), text);

        let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
        session.connect_requested(Instant::now());
        session.agent_connected(Opening::none(), Instant::now());
        assert_eq!(session.agent_bytes(greeting), greeting.len());
        assert_eq!(session.to_client(), told);
        assert_eq!(session.error().unwrap().to_string(), text);
    }
    for greeting in [&b"OK\n"[..], b"OK Pleased to meet you\r\n"] {
        let mut session = session_in(request::State::ConnectingToAgent);
        session.agent_bytes(greeting);
        assert_eq!(session.state(), request::State::Ready);
        assert_eq!(session.to_client(), greeting);
    }
}

#[test]
fn a_client_that_does_not_read_makes_only_its_own_session_wait() {
    let mut session = session_in(request::State::WaitingForAgent);
    let line = [&[b'D', b' '][..], &[b'x'; 900], b"\n"].concat();
    let mut held = 0;
    while session.takes_agent_bytes() {
        held += session.agent_bytes(&line);
        assert!(held < 36 * 1024, "grows without bound");
    }
    assert_eq!(session.agent_bytes(&line), 0);
    session.client_took(held);
    assert_eq!(session.agent_bytes(&line), line.len());
}
