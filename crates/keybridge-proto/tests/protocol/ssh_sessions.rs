//! One client's talk with ssh-agent, stepped by hand, in pieces of every size.

use std::time::{Duration, Instant};

use crate::ssh_binds::BIND;
use crate::ssh_talk::{EMPTY_LIST, FAILURE, Talk, extension, frame, login, message, sign, string};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{Limits, Peer, Session};
use keybridge_proto::ssh::session::State;
use keybridge_proto::ssh::{FrameError, MAX_FRAME, MessageType, Request, SessionError, SshSession};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_is_allowed_passes_byte_for_byte_in_pieces_of_every_size() {
    let requests = [
        Request::LIST.to_vec(),
        BIND.to_vec(),
        sign(b"a key", &login()),
        sign(b"a key", &message(b"git")),
        extension(Request::QUERY, b""),
    ];
    let answers = [
        EMPTY_LIST.to_vec(),
        frame(MessageType::SUCCESS, b""),
        frame(MessageType::SIGN_RESPONSE, &[3; 100]),
        FAILURE.to_vec(),
        frame(MessageType::EXTENSION_RESPONSE, b"\0\0\0\x05query"),
    ];
    for chunk in (1..40).chain([1000, 1 << 20]) {
        let mut talk = Talk::connected(Policy::default(), chunk);
        talk.answers.extend(answers.clone());
        talk.write(&requests.concat());
        assert_eq!(talk.agent_got, requests.concat(), "{chunk}");
        assert_eq!(talk.client_got, answers.concat(), "{chunk}");
        assert_eq!(talk.session.state(), State::Ready);
    }
}

#[test]
fn what_changes_the_agent_is_refused_in_its_place_and_never_sent() {
    let add = frame(MessageType::ADD_IDENTITY, &[1; 5000]);
    let extension = extension(b"ssh-env@gnupg.org", b"x");
    let list = Request::LIST.to_vec();
    for chunk in [1, 7, 4096, 1 << 20] {
        let mut talk = Talk::connected(Policy::default(), chunk);
        talk.answers.extend([EMPTY_LIST.to_vec(), frame(MessageType::SUCCESS, b"yes")]);
        talk.write(&[&add[..], &list, &extension, &add, &list, &extension].concat());
        assert_eq!(talk.agent_got, [&list[..], &list].concat(), "{chunk}");
        let refused = frame(MessageType::EXTENSION_FAILURE, b"");
        let expected = [
            &FAILURE[..],
            &EMPTY_LIST,
            &refused,
            &FAILURE,
            &frame(MessageType::SUCCESS, b"yes"),
            &refused,
        ];
        assert_eq!(talk.client_got, expected.concat(), "{chunk}");
    }
}

#[test]
fn with_the_users_word_plain_keys_are_added_and_nothing_of_others_is_sent() {
    let policy = Policy { allow_ssh_changes: true, ..Policy::default() };
    let key = [string(b"ssh-ed25519"), string(&[1; 32]), string(&[2; 64]), string(b"me")].concat();
    let provider = [string(b"sk-provider@openssh.com"), string(b"/lib/x.so")].concat();
    let add = frame(MessageType::ADD_ID_CONSTRAINED, &[&key[..], &[2]].concat());
    let load = frame(MessageType::ADD_ID_CONSTRAINED, &[&key[..], &[255], &provider].concat());
    let load_too = frame(MessageType::ADD_IDENTITY, &[&key[..], &[255], &provider].concat());
    let done = frame(MessageType::SUCCESS, b"");
    for chunk in [1, 7, 100, 1 << 20] {
        let mut talk = Talk::connected(policy.clone(), chunk);
        talk.answers.push_back(done.clone());
        talk.write(&[&load[..], &add, &load_too].concat());
        assert_eq!(talk.agent_got, add);
        assert_eq!(talk.client_got, [&FAILURE[..], &done, &FAILURE].concat());
    }
}

#[test]
fn what_can_not_be_judged_is_refused() {
    let malformed = [
        frame(MessageType::SIGN_REQUEST, b""),
        frame(MessageType::SIGN_REQUEST, b"\0\0\0\x09key"),
        sign(b"key", b"SSHSIG\0\0\0\x09"),
        // A key that nobody has.
        sign(&vec![1; 70_000], &login()),
        frame(MessageType(250), b"private"),
    ];
    for request in malformed {
        let mut talk = Talk::connected(Policy::default(), 999);
        talk.write(&request);
        assert!(talk.agent_got.is_empty());
        assert_eq!(talk.client_got, FAILURE);
        assert_eq!(talk.session.state(), State::Ready);
    }
    let mut talk = Talk::connected(Policy::default(), 999);
    talk.write(&frame(MessageType::EXTENSION, b"\xff\xff\xff\xff"));
    assert_eq!(talk.client_got, frame(MessageType::EXTENSION_FAILURE, b""));
}

#[test]
fn the_largest_frames_pass_both_ways() {
    let data = vec![5; MAX_FRAME - 1 - 4 - 3 - 4 - 4];
    let request = sign(b"key", &data);
    assert_eq!(request.len(), MAX_FRAME + 4);
    let answer = frame(MessageType::SIGN_RESPONSE, &vec![6; MAX_FRAME - 1]);
    let mut talk = Talk::connected(Policy::default(), 10_000);
    talk.answers.push_back(answer.clone());
    talk.write(&request);
    assert!(talk.agent_got == request && talk.client_got == answer);
}

#[test]
fn a_frame_of_the_client_that_is_none_gets_a_failure_and_the_end() {
    for (bytes, error) in [
        (&b"\0\0\0\0"[..], FrameError::Empty),
        (b"\0\x04\0\x01", FrameError::TooLong(262_145)),
        (b"\xff\xff\xff\xff", FrameError::TooLong(u32::MAX)),
    ] {
        let mut talk = Talk::connected(Policy::default(), 3);
        talk.write(&[bytes, &Request::LIST].concat());
        assert_eq!(talk.client_got, FAILURE);
        assert!(talk.agent_got.is_empty());
        assert_eq!(talk.session.error(), Some(&SessionError::Frame { from: Peer::Client, error }));
        assert_eq!(talk.session.state(), State::Disconnected);
    }
}

#[test]
fn a_request_that_is_cut_short_gets_a_failure_and_the_end() {
    let request = sign(b"key", &login());
    for at in 1..request.len() {
        let mut talk = Talk::connected(Policy::default(), 5);
        talk.write(&request[..at]);
        assert!(request.starts_with(&talk.agent_got));
        talk.session.client_eof();
        talk.run();
        assert_eq!(talk.client_got, FAILURE, "{at}");
        assert_eq!(talk.session.error(), Some(&SessionError::CutShort(Peer::Client)));
        assert_eq!(talk.session.state(), State::Disconnected);
    }
}

#[test]
fn the_end_of_a_clients_input_is_not_its_end() {
    let mut talk = Talk::connected(Policy::default(), 5);
    talk.write(&Request::LIST);
    talk.session.client_eof();
    talk.run();
    assert_eq!(talk.session.state(), State::WaitingForAgent);
    talk.answers.push_back(EMPTY_LIST.to_vec());
    talk.answer();
    assert_eq!(talk.client_got, EMPTY_LIST);
    assert_eq!((talk.session.state(), talk.session.error()), (State::Disconnected, None));

    let mut idle = Talk::connected(Policy::default(), 5);
    idle.session.client_eof();
    idle.run();
    assert_eq!((idle.session.state(), idle.session.error()), (State::Disconnected, None));
}

#[test]
fn a_hang_up_ends_the_agents_connection_at_once() {
    let mut talk = Talk::connected(Policy::default(), 5);
    talk.write(&Request::LIST);
    talk.session.client_closed(false);
    assert!(talk.session.cleanup().is_some());
    assert!(talk.session.to_client().is_empty() && talk.session.to_agent().is_empty());
    assert!(talk.session.cleanup().is_none(), "given out once");
}

#[test]
fn an_agent_that_dies_is_a_failure_for_the_request_that_waits() {
    let answer = frame(MessageType::SIGN_RESPONSE, &[3; 20]);
    for had_error in [false, true] {
        for at in 0..answer.len() {
            let mut talk = Talk::connected(Policy::default(), 4);
            talk.write(&Request::LIST);
            talk.answers.push_back(answer[..at].to_vec());
            talk.answer();
            talk.session.agent_closed(had_error);
            talk.run();
            // Once the type is through, nothing but the end is true.
            let (expected, error) = if at < 5 {
                (&FAILURE[..], SessionError::Broken(Peer::Agent))
            } else {
                (&answer[..at], SessionError::CutShort(Peer::Agent))
            };
            assert_eq!(talk.client_got, expected, "{at}");
            assert_eq!(talk.session.error(), Some(&error), "{at}");
            assert_eq!(talk.session.state(), State::Disconnected);
        }
        let mut half = Talk::connected(Policy::default(), 4);
        half.write(&sign(b"key", &login())[..20]);
        half.session.agent_closed(had_error);
        half.run();
        assert_eq!(half.client_got, FAILURE);
        let mut idle = Talk::connected(Policy::default(), 4);
        idle.session.agent_closed(had_error);
        idle.run();
        assert!(idle.client_got.is_empty(), "no answer without a request");
        assert_eq!(idle.session.error().is_some(), had_error);
        assert_eq!(idle.session.state(), State::Disconnected);
    }
}

#[test]
fn an_answer_that_is_no_frame_is_a_failure_and_the_end() {
    for (bytes, error) in
        [(&b"\0\0\0\0"[..], FrameError::Empty), (b"\0\x04\0\x01", FrameError::TooLong(262_145))]
    {
        let mut talk = Talk::connected(Policy::default(), 3);
        talk.answers.push_back(bytes.to_vec());
        talk.write(&Request::LIST);
        assert_eq!(talk.client_got, FAILURE);
        assert_eq!(talk.session.error(), Some(&SessionError::Frame { from: Peer::Agent, error }));
        assert_eq!(talk.session.state(), State::Disconnected);
    }
}

#[test]
fn an_agent_that_speaks_unasked_ends_the_session() {
    let mut talk = Talk::connected(Policy::default(), 100);
    talk.session.agent_bytes(&EMPTY_LIST);
    talk.run();
    assert_eq!(talk.session.error(), Some(&SessionError::Unasked { size: 9 }));
    assert!(talk.client_got.is_empty());
    assert_eq!(talk.session.state(), State::Disconnected);
    // More than was asked.
    let mut talk = Talk::connected(Policy::default(), 100);
    talk.answers.push_back(EMPTY_LIST.repeat(2));
    talk.write(&Request::LIST);
    assert_eq!(talk.client_got, EMPTY_LIST);
    assert_eq!(talk.session.error(), Some(&SessionError::Unasked { size: 9 }));
}

#[test]
fn without_an_agent_each_request_is_refused_and_the_client_stays() {
    let start = || {
        let mut talk = Talk::new(Policy::default(), 10);
        talk.session.connect_requested(talk.now);
        talk
    };
    let mut unreachable = start();
    unreachable.write(&Request::LIST);
    assert!(unreachable.client_got.is_empty(), "it may still come");
    unreachable.session.agent_unreachable("nobody is there");
    let mut late = start();
    late.session.timeout(late.now + 4 * SECOND);
    assert_eq!(late.session.state(), State::ConnectingToAgent);
    late.session.timeout(late.now + 5 * SECOND);
    late.write(&Request::LIST);
    for (mut talk, error) in [
        (unreachable, SessionError::Unreachable("nobody is there".into())),
        (late, SessionError::ConnectTimeout(5 * SECOND)),
    ] {
        talk.write(&[&extension(b"query", b"")[..], &sign(b"key", &login())].concat());
        assert_eq!(talk.client_got, FAILURE.repeat(3));
        assert_eq!(talk.session.state(), State::Ready);
        assert_eq!(talk.session.deadline(), None);
        assert_eq!(talk.session.error(), Some(&error));
        talk.session.agent_connected();
        assert!(talk.agent_got.is_empty());
        talk.session.client_eof();
        talk.run();
        assert_eq!(talk.session.state(), State::Disconnected);
    }
}

#[test]
fn an_answer_after_an_hour_is_delivered_and_can_be_given_a_limit() {
    let mut talk = Talk::connected(Policy::default(), 100);
    talk.write(&Request::LIST);
    assert_eq!(talk.session.deadline(), None);
    talk.session.timeout(talk.now + 3600 * SECOND);
    talk.answers.push_back(EMPTY_LIST.to_vec());
    talk.answer();
    assert_eq!(talk.client_got, EMPTY_LIST);

    let limits = Limits { response: Some(60 * SECOND), ..Limits::default() };
    for (answered, expected) in [(&b""[..], &FAILURE[..]), (&EMPTY_LIST[..6], &EMPTY_LIST[..6])] {
        let mut talk = Talk::new(Policy::default(), 100);
        talk.session = SshSession::new(Policy::default(), limits);
        talk.connect();
        talk.write(&Request::LIST);
        talk.answers.push_back(answered.to_vec());
        talk.answer();
        assert_eq!(talk.session.deadline(), Some(talk.now + 60 * SECOND));
        talk.session.timeout(talk.now + 60 * SECOND);
        talk.run();
        assert_eq!(talk.client_got, expected);
        assert_eq!(talk.session.error(), Some(&SessionError::ResponseTimeout(60 * SECOND)));
    }
}

#[test]
fn a_client_that_does_not_read_stops_its_own_session_alone() {
    let mut session = SshSession::new(Policy::default(), Limits::default());
    session.connect_requested(Instant::now());
    session.agent_connected();
    let flood = frame(MessageType::LOCK, b"").repeat(10_000);
    let taken = session.client_bytes(&flood);
    assert!(taken < 36_000, "{taken}");
    assert!(!session.takes_client_bytes() && !session.takes_agent_bytes());
    session.client_took(session.to_client().len());
    assert!(session.client_bytes(&flood) > 0);
}

#[test]
fn errors_say_what_was_expected_and_what_came() {
    for (error, text) in [
        (
            SessionError::CutShort(Peer::Client),
            "client: expected the rest of a frame, got the end of the connection",
        ),
        (
            SessionError::Frame { from: Peer::Agent, error: FrameError::Empty },
            "agent: expected a frame with a type, got one of length 0",
        ),
        (
            SessionError::Unasked { size: 3 },
            "expected silence until the next request, got 3 bytes from the agent",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_client_that_answers_like_an_agent_is_none() {
    for kind in MessageType::ALL.iter().copied().filter(|kind| kind.is_answer()) {
        let mut talk = Talk::connected(Policy::default(), 1 << 20);
        talk.write(&frame(kind, b""));
        assert_eq!(talk.session.error(), Some(&SessionError::AnswerOfClient(kind)));
        assert_eq!((&talk.agent_got[..], &talk.client_got[..]), (&b""[..], &FAILURE[..]));
    }
}
