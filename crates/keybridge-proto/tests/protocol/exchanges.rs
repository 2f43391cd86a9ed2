//! Raw exchanges through both sessions, each split at every byte.

use crate::chain::{Chain, FORBIDDEN, exchange, ready_agent_session};
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::{AgentSession, Limits, Session, SessionError, agent, request};
use keybridge_proto::socket_file::Opening;
use std::sync::Arc;
use std::time::Instant;

#[test]
fn pipelined_commands_are_answered_in_order() {
    exchange(
        b"NOP\nGETINFO version\r\nFOO\nNOP\n",
        &[b"OK\nD 2.2.40\nOK\n", FORBIDDEN, b"OK\n"].concat(),
        &["NOP", "GETINFO version", "NOP"],
    );
}

#[test]
fn comments_and_blank_lines_between_commands_need_no_answer() {
    exchange(b"\n# hello\n\r\nNOP\n#\n\nNOP\n", b"OK\nOK\n", &["NOP", "NOP"]);
}

#[test]
fn a_passphrase_dialog_is_denied_however_it_is_spelt() {
    for line in [
        "GET_PASSPHRASE",
        "get_passphrase",
        "gEt_PaSsPhRaSe --data x",
        "GET_PASSPHRASE\tx",
        "GET_PASSPHRASE \t x\r",
        "GET_PASSPHRASE\r",
    ] {
        exchange(
            format!("NOP\n{line}\nNOP\n").as_bytes(),
            &[b"OK\n", FORBIDDEN, b"OK\n"].concat(),
            &["NOP", "NOP"],
        );
    }
    // Leading white space is a syntax error to the agent, which isn't told.
    exchange(b" GET_PASSPHRASE\n", FORBIDDEN, &[]);
}

#[test]
fn a_passphrase_dialog_passes_where_the_user_allows_it() {
    let policy = Policy { allow_get_passphrase: true, ..Policy::default() };
    let mut chain = Chain::greeted(policy, 3);
    chain.write(b"GET_PASSPHRASE a\n");
    assert_eq!(chain.read, b"OK hunter2\n");
}

#[test]
fn a_nul_outside_data_ends_the_session() {
    for line in [&b"GET_PASSPHRASE\0x\n"[..], b"NOP\0\n", b"\0\n", b"#\0\n", b"D\0 x\n"] {
        let bytes = [b"NOP\n", line, b"NOP\n"].concat();
        for cut in 0..=bytes.len() {
            let mut chain = Chain::greeted(Policy::default(), usize::MAX);
            chain.write(&bytes[..cut]);
            chain.write(&bytes[cut..]);
            assert_eq!(chain.read, b"OK\nERR 67109140 IPC syntax error <GPG Agent>\n", "{line:?}");
            assert_eq!(chain.gpg_agent.commands(), ["NOP"], "{line:?}");
            assert_eq!(chain.request.state(), request::State::Disconnected);
            assert!(matches!(chain.request.error(), Some(SessionError::NulByte(_))));
            assert_eq!(chain.agent.state(), agent::State::Disconnected);
        }
    }
}

/// The target's helper is not trusted: the host's session has to hold alone.
#[test]
fn the_agent_session_ends_at_a_nul_without_the_helpers_help() {
    let mut session = ready_agent_session(Policy::default());
    session.client_bytes(b"GET_PASSPHRASE\0x\n");
    assert_eq!(session.to_agent(), b"");
    assert_eq!(session.to_client(), b"ERR 67109140 IPC syntax error <GPG Agent>\n");
    assert!(matches!(session.error(), Some(SessionError::NulByte(_))));
    assert_eq!(session.state(), agent::State::Closing);
}

#[test]
fn a_line_of_1001_bytes_passes_and_one_of_1002_ends_the_session() {
    let longest = [b"SETKEYDESC ", &vec![b'x'; 990][..], b"\nNOP\n"].concat();
    let too_long = [&vec![b'x'; 1002][..], b"\nNOP\n"].concat();
    for cut in 0..=longest.len() {
        let mut chain = Chain::greeted(Policy::default(), usize::MAX);
        chain.write(&longest[..cut]);
        chain.write(&longest[cut..]);
        assert_eq!(chain.read, b"OK\nOK\n", "cut at {cut}");
        assert_eq!(chain.gpg_agent.lines.concat(), longest);

        let mut chain = Chain::greeted(Policy::default(), usize::MAX);
        chain.write(&too_long[..cut]);
        chain.write(&too_long[cut..]);
        let farewell = "ERR 67109127 Line passed to IPC too long <GPG Agent>\n";
        assert_eq!(String::from_utf8_lossy(&chain.read), farewell);
        assert!(chain.gpg_agent.lines.is_empty());
        let error = chain.request.error().unwrap().to_string();
        assert_eq!(error, "client: expected a line of at most 1002 bytes, got a longer one");

        let mut host = ready_agent_session(Policy::default());
        host.client_bytes(&vec![b'x'; 1 << 20]);
        assert_eq!(host.to_agent(), b"");
        assert_eq!(String::from_utf8_lossy(host.to_client()), farewell);
    }
}

#[test]
fn data_holds_every_byte_value_both_ways() {
    let all: Vec<u8> = (0..=255).collect();
    let mut data = Vec::new();
    keybridge_proto::assuan::escape_into(&mut data, &all);
    let request = [b"PKDECRYPT\nD ", &data[..], b"\nEND\n"].concat();
    let answer = [b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD ", &data[..], b"\nOK\n"].concat();
    for chunk in 1..=request.len() {
        let mut chain = Chain::greeted(Policy::default(), chunk);
        chain.write(&request);
        assert_eq!(chain.read, answer);
        assert_eq!(chain.gpg_agent.lines.concat(), [&request[..], b"NOP\n"].concat());
    }
}

#[test]
fn a_main_socket_is_answered_as_a_restricted_one() {
    let policy = Policy { socket: AgentSocket::Main, ..Policy::default() };
    let mut chain = Chain::greeted(policy, 5);
    chain.write(b"GETINFO restricted\nKILLAGENT\nOPTION ttyname=/dev/tty\nNOP\n");
    assert_eq!(chain.read, [b"OK\n", FORBIDDEN, FORBIDDEN, b"OK\n"].concat());
    assert_eq!(chain.gpg_agent.commands(), ["NOP"]);
    // Inside an inquiry it would only break the inquiry.
    chain.read.clear();
    chain.write(b"PKDECRYPT\nGETINFO restricted\n");
    assert!(chain.read.ends_with(FORBIDDEN));
}

#[test]
fn what_an_agent_must_not_send_ends_the_session() {
    let bad: [(&[u8], &str); 4] = [
        (
            b"HTTP/1.1 400 Bad\n",
            "agent: expected OK, ERR, S, D, INQUIRE, END or a comment, got another line of 16 bytes",
        ),
        (
            b"OK\0\n",
            "agent: expected OK, ERR, S, D, INQUIRE, END or a comment, got another line of 3 bytes",
        ),
        (&[b'S'; 1002], "agent: expected a line of at most 1002 bytes, got a longer one"),
        (b"INQUIRE B\n", "expected the end of the inquiry, got another INQUIRE"),
    ];
    for (bytes, error) in bad {
        let mut session = ready_agent_session(Policy::default());
        session.client_bytes(b"PKDECRYPT\n");
        session.agent_took(10, Instant::now());
        session.agent_bytes(b"INQUIRE A\n");
        session.agent_bytes(bytes);
        assert_eq!(session.error().unwrap().to_string(), error);
        assert!(session.to_client().ends_with(b"ERR 67109124 Invalid IPC response <GPG Agent>\n"));
    }
    let mut session = ready_agent_session(Policy::default());
    session.agent_bytes(b"OK again\n");
    let unasked = "expected silence until the next command, got a line of 8 bytes from the agent";
    assert_eq!(session.error().unwrap().to_string(), unasked);
}

#[test]
fn the_greeting_is_shown_only_after_the_socket_has_proven_itself() {
    let now = Instant::now();
    for (proof, good) in [
        (&b"OK\n"[..], true),
        (b"# x\n\nOK\n", true),
        (b"ERR 67109120 False\n", false),
        (b"D 1\n", false),
        (b"S x\n", false),
    ] {
        let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
        session.connect_requested(now);
        session.agent_connected(Opening::none(), now);
        session.agent_bytes(b"OK hello\n");
        assert_eq!(session.to_agent(), b"GETINFO restricted\n");
        assert_eq!(session.to_client(), b"");
        assert!(!session.takes_client_bytes());
        session.agent_took(19, now);
        session.agent_bytes(proof);
        if good {
            assert_eq!(session.to_client(), b"OK hello\n");
            assert!(session.takes_client_bytes());
        } else {
            assert_eq!(session.to_client(), FORBIDDEN);
            assert_eq!(session.error(), Some(&SessionError::NotRestricted));
        }
    }
}

#[test]
fn tcp_sockets_are_opened_with_their_nonce() {
    let now = Instant::now();
    let nonce = || keybridge_proto::Secret::new(*b"\0\r\n3456789abcdef");

    let mut native = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    native.connect_requested(now);
    native.agent_connected(Opening::native(&nonce()), now);
    assert_eq!(native.state(), agent::State::SendingToAgent);
    assert_eq!(native.to_agent(), nonce().expose());
    native.agent_took(16, now);
    assert_eq!(native.state(), agent::State::WaitingForAgent);
    native.agent_bytes(b"OK hello\n");
    assert_eq!(native.to_agent(), b"GETINFO restricted\n");

    for chunk in [1, 5, 64] {
        let mut cygwin = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
        cygwin.connect_requested(now);
        cygwin.agent_connected(Opening::cygwin(&nonce(), 7, 8, 9), now);
        assert_eq!(cygwin.to_agent(), nonce().expose());
        cygwin.agent_took(16, now);
        for part in nonce().expose().chunks(chunk) {
            assert_eq!(cygwin.agent_bytes(part), part.len());
        }
        assert_eq!(cygwin.to_agent().len(), 8);
        cygwin.agent_took(8, now);
        for part in b"12345678OK hello\n".chunks(chunk) {
            assert_eq!(cygwin.agent_bytes(part), part.len());
        }
        assert_eq!(cygwin.to_agent(), b"GETINFO restricted\n");

        let mut wrong = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
        wrong.connect_requested(now);
        wrong.agent_connected(Opening::cygwin(&nonce(), 7, 8, 9), now);
        wrong.agent_took(16, now);
        wrong.agent_bytes(b"XXXXXXXXXXXXXXXX");
        assert!(matches!(wrong.error(), Some(SessionError::Opening(_))));
    }
}

#[test]
fn nothing_grows_when_a_side_takes_nothing() {
    const BOUND: usize = 32 * 1024 + 1002;
    // A flood of denied commands whose answers nobody reads.
    let mut session = ready_agent_session(Policy::default());
    while session.client_bytes(b"GET_PASSPHRASE\n") > 0 {
        assert!(session.to_client().len() < BOUND);
    }
    // A flood of data that the agent doesn't take.
    let mut session = ready_agent_session(Policy::default());
    session.client_bytes(b"PKDECRYPT\n");
    session.agent_took(usize::MAX, Instant::now());
    session.agent_bytes(b"INQUIRE A\n");
    let line = [b"D ", &[b'x'; 900][..], b"\n"].concat();
    while session.client_bytes(&line) > 0 {
        assert!(session.to_agent().len() < BOUND);
    }
    // A flood of answers that the client doesn't take.
    let mut session = ready_agent_session(Policy::default());
    session.client_bytes(b"GETINFO version\n");
    session.agent_took(usize::MAX, Instant::now());
    while session.agent_bytes(&line) > 0 {
        assert!(session.to_client().len() < BOUND);
    }
}

#[test]
fn no_debug_form_shows_a_nonce_or_data() {
    let now = Instant::now();
    let marks = |text: String| text.contains("171, 171") || text.contains("abab");
    let nonce = keybridge_proto::Secret::new([0xab; 16]);
    let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    session.connect_requested(now);
    session.agent_connected(Opening::cygwin(&nonce, 1, 2, 3), now);
    assert!(!marks(format!("{session:?}")), "the nonce on its way out");
    session.agent_took(16, now);
    session.agent_bytes(&[0xab; 9]);
    assert!(!marks(format!("{session:?}")), "the nonce on its way in");

    let mut chain = Chain::greeted(Policy::default(), usize::MAX);
    chain.write(b"PKDECRYPT\n");
    chain.request.client_bytes(b"D \xab\xab\xab\nD \xab\xab");
    assert!(!marks(format!("{:?}", chain.request)));
    chain.agent.client_bytes(b"D \xab\xab\xab\nD \xab\xab");
    assert!(!marks(format!("{:?}", chain.agent)));
}

#[test]
fn no_text_of_a_dialog_ever_reaches_the_agent_as_a_target_has_written_it() {
    exchange(b"SETKEYDESC a%1B[2Jb%E2%80%AEc\nNOP\n", b"OK\nOK\n", &["SETKEYDESC a?[2Jb?c", "NOP"]);
}
