//! Ends of sessions: closes in every state, the end of input, BYE.

use std::sync::Arc;
use std::time::Instant;

use crate::chain::{Chain, GREETING};
use crate::session_states::{LIVE, agent_in, session_in};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{
    AgentSession, Cleanup, Limits, RequestSession, Session, SessionError, agent, request,
};

const NO_AGENT: &[u8] = b"ERR 67108941 No agent running <GPG Agent>\n";

#[test]
fn what_is_passed_over_after_bye_does_not_make_its_end_an_error() {
    let mut agent = agent_in(agent::State::Ready);
    agent.client_bytes(b"BYE\n");
    agent.agent_took(4, Instant::now());
    agent.agent_bytes(b"OK closing connection\n");
    agent.client_bytes(b"\n# late\n");
    agent.agent_closed(true);
    assert_eq!(agent.error(), None);
    let mut request = session_in(request::State::Ready);
    request.client_bytes(b"BYE\n");
    request.agent_took(4, Instant::now());
    request.agent_bytes(b"OK closing connection\n");
    request.client_took(usize::MAX);
    request.client_bytes(b"\n");
    request.agent_closed(true);
    assert_eq!(request.error(), None);
}

#[test]
fn an_agent_that_closes_inside_an_inquiry_is_told() {
    let mut agent = agent_in(agent::State::WaitingForAgent);
    agent.agent_bytes(b"INQUIRE X\n");
    agent.client_took(usize::MAX);
    assert_eq!(agent.state(), agent::State::Ready);
    agent.agent_closed(false);
    assert_eq!(agent.to_client(), NO_AGENT);
}

#[test]
fn bye_is_a_clean_end_when_the_agent_closes_after_its_ok() {
    let mut chain = Chain::greeted(Policy::default(), 4);
    chain.write(b"BYE\n");
    assert_eq!(chain.read, b"OK closing connection\n");
    assert_eq!(chain.request.state(), request::State::Disconnected);
    assert_eq!(chain.agent.state(), agent::State::Disconnected);
    assert_eq!(chain.request.error(), None);
    assert_eq!(chain.agent.error(), None);
}

#[test]
fn bye_is_a_clean_end_when_the_agent_closes_before_its_ok() {
    for had_error in [false, true] {
        let mut request = session_in(request::State::Ready);
        request.client_bytes(b"bye\n");
        request.agent_took(4, Instant::now());
        assert_eq!(request.state(), request::State::WaitingForAgent);
        request.agent_closed(had_error);
        assert_eq!(request.to_client(), b"");
        assert_eq!(request.error(), None);
        assert_eq!(request.cleanup(), Some(Cleanup { had_error: false }));

        let mut agent = agent_in(agent::State::Ready);
        agent.client_bytes(b"Bye\n");
        agent.agent_took(4, Instant::now());
        agent.agent_closed(had_error);
        assert_eq!(agent.to_client(), b"");
        assert_eq!(agent.error(), None);
        assert_eq!(agent.cleanup(), Some(Cleanup { had_error: false }));
    }
}

#[test]
fn the_end_of_input_lets_the_command_under_way_finish() {
    let mut chain = Chain::greeted(Policy::default(), 4);
    chain.write(b"PKSIGN\n");
    chain.request.client_eof();
    chain.run();
    assert_eq!(chain.request.state(), request::State::WaitingForAgent);
    chain.gpg_agent.out.extend_from_slice(b"D answer\nOK\n");
    chain.run();
    assert_eq!(chain.read, b"S PROGRESS 1\nD answer\nOK\n");
    assert_eq!(chain.request.state(), request::State::Disconnected);
    assert_eq!(chain.agent.state(), agent::State::Disconnected);
    assert_eq!((chain.request.error(), chain.agent.error()), (None, None));

    // The same on the host, when the link carries the end of input.
    let mut agent = agent_in(agent::State::WaitingForAgent);
    agent.client_eof();
    assert_eq!(agent.cleanup(), None);
    agent.agent_bytes(b"OK\n");
    assert_eq!(agent.cleanup(), Some(Cleanup { had_error: false }));
    assert_eq!(agent.to_client(), b"OK\n");
}

#[test]
fn the_end_of_input_ends_what_can_no_longer_be_completed() {
    for state in
        [request::State::Ready, request::State::BufferingCommand, request::State::BufferingInquire]
    {
        let mut session = session_in(state);
        session.client_eof();
        assert_eq!(session.cleanup(), Some(Cleanup { had_error: false }), "{state:?}");
    }
    // Before the greeting there is an answer to come: the greeting.
    let mut session = session_in(request::State::ConnectingToAgent);
    session.client_eof();
    assert_eq!(session.cleanup(), None);
    session.agent_bytes(GREETING);
    assert_eq!(session.to_client(), GREETING);
    assert_eq!(session.cleanup(), Some(Cleanup { had_error: false }));
    let mut agent = agent_in(agent::State::Ready);
    agent.client_eof();
    assert_eq!(agent.cleanup(), Some(Cleanup { had_error: false }));
}

#[test]
fn a_client_can_close_in_any_state() {
    use request::State as S;
    for state in LIVE {
        for had_error in [false, true] {
            let mut session = session_in(state);
            session.client_closed(had_error);
            assert_eq!(session.cleanup(), Some(Cleanup { had_error }), "{state:?}");
            assert_eq!(session.to_client(), b"", "nobody is there to read");
            assert_eq!(session.to_agent(), b"");
            assert_eq!(session.error().is_some(), had_error);
            assert_eq!(session.state(), S::Closing);
            // Again, from either side, while closing and after: passed over.
            for again in [false, true] {
                session.client_closed(again);
                session.agent_closed(again);
            }
            assert_eq!((session.state(), session.cleanup()), (S::Closing, None));
            session.cleanup_done(Ok::<(), String>(()));
            for again in [false, true] {
                session.client_closed(again);
                session.agent_closed(again);
            }
            assert_eq!(session.state(), S::Disconnected);
        }
    }
    let mut session = RequestSession::new(Limits::default());
    session.client_closed(true);
    session.agent_closed(true);
    session.client_eof();
    assert_eq!((session.state(), session.cleanup()), (S::Disconnected, None));
}

#[test]
fn an_agent_can_close_in_any_state_and_the_client_is_told_if_it_waits() {
    use request::State as S;
    for state in LIVE {
        for had_error in [false, true] {
            let mut session = session_in(state);
            let before = session.to_client().to_vec();
            session.agent_closed(had_error);
            assert_eq!(session.cleanup(), Some(Cleanup { had_error }), "{state:?}");
            let told: &[u8] = match state {
                S::Ready | S::SendingToClient => b"",
                _ => NO_AGENT,
            };
            assert_eq!(session.to_client(), [&before, told].concat(), "{state:?}");
        }
    }
}

#[test]
fn both_sides_can_close_in_any_state_of_the_agent_session() {
    use agent::State as S;
    let live = [S::ConnectingToAgent, S::SendingToAgent, S::WaitingForAgent, S::Ready];
    for state in live {
        for had_error in [false, true] {
            let mut session = agent_in(state);
            session.client_closed(had_error);
            assert_eq!(session.cleanup(), Some(Cleanup { had_error }), "{state:?}");
            assert_eq!(session.to_client(), b"");
            for again in [false, true] {
                session.client_closed(again);
                session.agent_closed(again);
            }
            assert_eq!((session.state(), session.cleanup()), (S::Closing, None));
            session.cleanup_done(Ok::<(), String>(()));
            for again in [false, true] {
                session.client_closed(again);
                session.agent_closed(again);
            }
            assert_eq!(session.state(), S::Disconnected);

            let mut session = agent_in(state);
            session.agent_closed(had_error);
            assert_eq!(session.cleanup(), Some(Cleanup { had_error }), "{state:?}");
            let told: &[u8] = if state == S::Ready { b"" } else { NO_AGENT };
            assert_eq!(session.to_client(), told, "{state:?}");
        }
    }
    let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    session.client_closed(true);
    session.agent_closed(true);
    assert_eq!((session.state(), session.cleanup()), (S::Disconnected, None));
}

#[test]
fn a_client_that_answers_like_an_agent_is_none() {
    for answer in
        [&b"OK\n"[..], b"OK Pleased to meet you\n", b"ERR 1 x\n", b"S X\n", b"INQUIRE X\n"]
    {
        let mut agent = agent_in(agent::State::Ready);
        agent.client_bytes(answer);
        assert_eq!(agent.error(), Some(&SessionError::AnswerOfClient), "{answer:?}");
        assert_eq!(agent.cleanup(), Some(Cleanup { had_error: true }));
    }
    for other in [&b"OKAY\n"[..], b"ok\n", b"SX\n", b"D x\n", b"END\n", b"# OK\n"] {
        let mut agent = agent_in(agent::State::Ready);
        agent.client_bytes(other);
        assert_eq!(agent.error(), None, "{other:?}");
    }
}
