//! Raw exchanges through both sessions, each split at every byte.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    missing_docs,
    reason = "a panic is how a test fails"
)]

mod chain;

use chain::{CANCELED, Chain, FORBIDDEN, KEY, lent};
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::{AgentSession, Limits, Session, SessionError, agent, request};
use keybridge_proto::socket_file::Opening;
use std::sync::Arc;
use std::time::Instant;

/// Sends `bytes` in every way of cutting them in two, and in chunks of every size; the client reads
/// `answer`, and the commands that reach the agent are `commands`.
fn exchange(bytes: &[u8], answer: &[u8], commands: &[&str]) {
    let check = |chain: &Chain, how: &str| {
        let read = String::from_utf8_lossy(&chain.read);
        assert_eq!(read, String::from_utf8_lossy(answer), "{how}");
        assert_eq!(chain.gpg_agent.commands(), commands, "{how}");
    };
    for chunk in 1..=bytes.len() {
        let mut chain = Chain::greeted(Policy::default(), chunk);
        chain.write(bytes);
        check(&chain, &format!("chunks of {chunk}"));
    }
    for cut in 0..=bytes.len() {
        let mut chain = Chain::greeted(Policy::default(), usize::MAX);
        chain.write(&bytes[..cut]);
        chain.write(&bytes[cut..]);
        check(&chain, &format!("cut at {cut}"));
    }
}

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
fn a_data_line_may_end_in_end() {
    exchange(
        b"PKDECRYPT\nD some END\nD END\nEND\nNOP\n",
        b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD some ENDEND\nOK\nOK\n",
        &["PKDECRYPT", "END", "NOP"],
    );
}

#[test]
fn the_end_of_an_inquiry_may_be_written_in_lower_case() {
    for end in ["END", "end", "eNd", "END "] {
        exchange(
            format!("PKDECRYPT\nD x\n{end}\nNOP\n").as_bytes(),
            b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD x\nOK\nOK\n",
            &["PKDECRYPT", end.trim_end(), "NOP"],
        );
    }
}

#[test]
fn an_inquiry_can_be_cancelled() {
    exchange(
        b"PKDECRYPT\nD x\nCAN\nNOP\n",
        &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", CANCELED, b"OK\n"].concat(),
        &["PKDECRYPT", "CAN", "NOP"],
    );
}

#[test]
fn comments_and_blank_lines_pass_inside_an_inquiry() {
    exchange(
        b"PKDECRYPT\n# END\n\nD x\n\r\n#\nD y\nEND\n",
        b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD xy\nOK\n",
        &["PKDECRYPT", "END"],
    );
}

#[test]
fn several_inquiries_in_one_command() {
    exchange(
        b"PKDECRYPT --kem=PQC-PGP\nD 1\nEND\nEND\nD 3\nEND\nNOP\n",
        b"S ASKING A\nINQUIRE A\nS ASKING B\nINQUIRE B\nS ASKING C\nINQUIRE C\nD 13\nOK\nOK\n",
        &["PKDECRYPT --kem=PQC-PGP", "END", "END", "END", "NOP"],
    );
}

#[test]
fn a_line_that_breaks_an_inquiry_hides_nothing_behind_it() {
    for breaker in ["FOO", "D", "D\tx", "d x", "END x", "INPUT FD=3", "GETINFO version"] {
        exchange(
            format!("PKDECRYPT\nD x\n{breaker}\nGET_PASSPHRASE a b c d\nNOP\n").as_bytes(),
            &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", FORBIDDEN, FORBIDDEN, b"OK\n"].concat(),
            &["PKDECRYPT", "CAN", "NOP"],
        );
    }
}

#[test]
fn a_denied_line_inside_an_inquiry_calls_it_off() {
    exchange(
        b"PKDECRYPT\nD x\nget_passphrase a\nNOP\n",
        &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", FORBIDDEN, b"OK\n"].concat(),
        &["PKDECRYPT", "CAN", "NOP"],
    );
}

#[test]
fn a_denied_line_is_denied_even_if_the_agent_goes_on_asking() {
    let mut session = ready_agent_session(Policy::default());
    session.client_bytes(b"PKDECRYPT\n");
    session.agent_took(usize::MAX, Instant::now());
    session.agent_bytes(b"INQUIRE A\n");
    session.client_took(usize::MAX);
    assert_eq!(session.client_bytes(b"GET_PASSPHRASE\nNOP\n"), 15);
    for _ in 0..3 {
        assert_eq!(session.to_agent(), b"CAN\n");
        session.agent_took(4, Instant::now());
        session.agent_bytes(b"S more\nINQUIRE B\n");
        assert_eq!(session.to_client(), b"");
    }
    session.agent_took(4, Instant::now());
    session.agent_bytes(b"OK\n");
    assert_eq!(session.to_client(), FORBIDDEN);
    assert!(session.takes_client_bytes());
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
        assert_eq!(chain.gpg_agent.lines.concat(), request);
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
fn an_agent_that_ends_an_inquiry_early_is_heard() {
    let mut chain = Chain::greeted(Policy::default(), 4);
    chain.write(b"PKDECRYPT\nD x\n");
    chain.read.clear();
    chain.gpg_agent.out.extend_from_slice(b"S LATE\nERR 67109137 Too much data for IPC layer\n");
    chain.run();
    assert_eq!(chain.read, b"S LATE\nERR 67109137 Too much data for IPC layer\n");
    assert_eq!(chain.request.state(), request::State::Ready);
    assert_eq!(chain.agent.state(), agent::State::Ready);
    assert!(!chain.agent.is_in_inquiry());
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

fn ready_agent_session(policy: Policy) -> AgentSession {
    let now = Instant::now();
    let mut session = AgentSession::new(policy, lent(), Limits::default());
    session.connect_requested(now);
    session.agent_connected(Opening::none(), now);
    session.agent_bytes(b"OK hello\n");
    session.agent_took(19, now);
    session.agent_bytes(b"OK\n");
    session.client_bytes(format!("SETKEY {KEY}\n").as_bytes());
    session.agent_took(usize::MAX, now);
    session.agent_bytes(b"OK\n");
    session.client_took(usize::MAX);
    assert_eq!(session.state(), agent::State::Ready);
    session
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
fn a_keyinfo_that_an_older_agent_forbids_is_healed() {
    let grip = KEY;
    let ask = |heal: bool, line: &str| {
        let mut session = ready_agent_session(Policy { heal, ..Policy::default() });
        session.client_bytes(line.as_bytes());
        assert_eq!(session.to_agent(), line.as_bytes());
        session.agent_took(usize::MAX, Instant::now());
        session.agent_bytes(FORBIDDEN);
        session
    };
    let healed = format!("S KEYINFO {grip} D - - - P - - -\nOK\n");
    for (answer, told) in
        [(&b"OK\n"[..], healed.as_bytes()), (b"ERR 67108881 No secret key\n", FORBIDDEN)]
    {
        let mut session = ask(true, &format!("keyinfo  {grip}\n"));
        assert_eq!(session.to_agent(), format!("HAVEKEY {grip}\n").as_bytes());
        assert!(!session.takes_client_bytes());
        session.agent_took(usize::MAX, Instant::now());
        session.agent_bytes(answer);
        assert_eq!(session.to_client(), told);
        assert_eq!(session.client_bytes(b"NOP\n"), 4);
    }
    for (heal, line) in [
        (false, format!("KEYINFO {grip}\n")),
        (true, format!("READKEY {grip}\n")),
        (true, "NOP\n".to_owned()),
    ] {
        let session = ask(heal, &line);
        assert_eq!(session.to_agent(), b"", "{line}");
        assert_eq!(session.to_client(), FORBIDDEN, "{line}");
    }
    // An agent that dies in between.
    let mut session = ask(true, &format!("KEYINFO {grip}\n"));
    session.agent_closed(false);
    assert_eq!(session.to_client(), b"ERR 67108941 No agent running <GPG Agent>\n");
}

#[test]
fn keys_that_are_not_lent_are_not_heard_of() {
    let other = "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF";
    let mut chain = Chain::greeted(Policy::default(), 7);
    chain.write(
        format!(
            "HAVEKEY {other} {KEY}\nHAVEKEY {other}\nKEYINFO {other}\nSIGKEY {other}\nPKSIGN\n\
             PKDECRYPT\nNOP\n"
        )
        .as_bytes(),
    );
    let missing = "ERR 67108881 No secret key <GPG Agent>\n";
    let unknown = "ERR 67108891 Not found <GPG Agent>\n";
    let told = format!("OK\n{missing}{unknown}OK\n{missing}{missing}OK\n");
    assert_eq!(String::from_utf8_lossy(&chain.read), told);
    assert_eq!(chain.gpg_agent.commands(), ["NOP"]);
}

#[test]
fn the_lent_keys_are_listed_in_the_agents_place() {
    let mut chain = Chain::greeted(Policy::default(), 7);
    chain.write(b"HAVEKEY --list=1000\nHAVEKEY --list=0\nHAVEKEY --list\n");
    let mut listed = b"D ".to_vec();
    let grip = *keybridge_proto::gate::KeyGrip::parse(KEY.as_bytes()).unwrap().as_bytes();
    keybridge_proto::assuan::escape_into(&mut listed, &grip);
    listed.extend_from_slice(b"\nOK\n");
    let truncated = &b"ERR 67108938 Operation truncated <GPG Agent>\n"[..];
    assert_eq!(chain.read, [&listed[..], truncated, &listed].concat());
    assert_eq!(chain.gpg_agent.commands(), [""; 0]);
}

#[test]
fn a_long_list_of_keys_stands_in_lines_that_are_not_too_long() {
    use keybridge_proto::gate::{KeyGrip, Rights, Use};
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::Denied };
    // Every byte of every keygrip needs an escape.
    let keys = (0..4096_u32).map(|number| {
        let digits: String =
            (0..20).map(|bit| if number >> (bit % 12) & 1 == 0 { "0A" } else { "25" }).collect();
        (KeyGrip::parse(digits.as_bytes()).unwrap(), rights)
    });
    let mut session =
        AgentSession::new(Policy::default(), Arc::new(keys.collect()), Limits::default());
    let now = Instant::now();
    session.connect_requested(now);
    session.agent_connected(Opening::none(), now);
    session.agent_bytes(b"OK hello\n");
    session.agent_took(usize::MAX, now);
    session.agent_bytes(b"OK\n");
    session.client_took(usize::MAX);
    session.client_bytes(b"HAVEKEY --list\n");
    let lines: Vec<&[u8]> = session.to_client().split_inclusive(|&byte| byte == b'\n').collect();
    assert!(lines.iter().all(|line| line.len() <= 1001), "a line is too long");
    assert_eq!(lines.last(), Some(&&b"OK\n"[..]));
    assert_eq!(lines.len(), 4096 / 16 + 1);
    // It doesn't take more while that waits to be read.
    assert_eq!(session.client_bytes(b"HAVEKEY --list\n"), 0);
}
