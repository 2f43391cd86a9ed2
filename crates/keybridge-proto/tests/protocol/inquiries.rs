//! Inquiries of the agent, through both sessions, each exchange split at every byte. After each, the session
//! itself asks the agent `NOP`.

use crate::chain::{CANCELED, Chain, FORBIDDEN, KEY, TOO_MUCH_DATA, exchange, ready_agent_session};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{Session, SessionError, agent, request};
use std::time::Instant;

#[test]
fn a_data_line_may_end_in_end() {
    exchange(
        b"PKDECRYPT\nD some END\nD END\nEND\nNOP\n",
        b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD some ENDEND\nOK\nOK\n",
        &["PKDECRYPT", "END", "NOP", "NOP"],
    );
}

#[test]
fn the_end_of_an_inquiry_may_be_written_in_lower_case() {
    for end in ["END", "end", "eNd", "END "] {
        exchange(
            format!("PKDECRYPT\nD x\n{end}\nNOP\n").as_bytes(),
            b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD x\nOK\nOK\n",
            &["PKDECRYPT", end.trim_end(), "NOP", "NOP"],
        );
    }
}

#[test]
fn an_inquiry_can_be_cancelled() {
    exchange(
        b"PKDECRYPT\nD x\nCAN\nNOP\n",
        &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", CANCELED, b"OK\n"].concat(),
        &["PKDECRYPT", "CAN", "NOP", "NOP"],
    );
}

#[test]
fn comments_and_blank_lines_pass_inside_an_inquiry() {
    exchange(
        b"PKDECRYPT\n# END\n\nD x\n\r\n#\nD y\nEND\n",
        b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\nD xy\nOK\n",
        &["PKDECRYPT", "END", "NOP"],
    );
}

#[test]
fn several_inquiries_in_one_command() {
    exchange(
        b"PKDECRYPT --kem=PQC-PGP\nD 1\nEND\nEND\nD 3\nEND\nNOP\n",
        b"S ASKING A\nINQUIRE A\nS ASKING B\nINQUIRE B\nS ASKING C\nINQUIRE C\nD 13\nOK\nOK\n",
        &["PKDECRYPT --kem=PQC-PGP", "END", "END", "END", "NOP", "NOP"],
    );
}

#[test]
fn a_line_that_breaks_an_inquiry_hides_nothing_behind_it() {
    for breaker in ["FOO", "D", "D\tx", "d x", "END x", "INPUT FD=3", "GETINFO version"] {
        exchange(
            format!("PKDECRYPT\nD x\n{breaker}\nGET_PASSPHRASE a b c d\nNOP\n").as_bytes(),
            &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", FORBIDDEN, FORBIDDEN, b"OK\n"].concat(),
            &["PKDECRYPT", "CAN", "NOP", "NOP"],
        );
    }
}

#[test]
fn a_denied_line_inside_an_inquiry_calls_it_off() {
    exchange(
        b"PKDECRYPT\nD x\nget_passphrase a\nNOP\n",
        &[b"S ASKING CIPHERTEXT\nINQUIRE CIPHERTEXT\n", FORBIDDEN, b"OK\n"].concat(),
        &["PKDECRYPT", "CAN", "NOP", "NOP"],
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
    assert_eq!(session.to_agent(), b"NOP\n");
    assert!(!session.takes_client_bytes());
    session.agent_took(4, Instant::now());
    session.agent_bytes(b"OK\n");
    assert_eq!(session.to_client(), FORBIDDEN);
    assert!(session.takes_client_bytes());
}

#[test]
fn an_answer_inside_an_open_inquiry_is_passed_on_and_the_last_one() {
    for answer in [&[b"S LATE\n", TOO_MUCH_DATA].concat()[..], b"OK\n"] {
        let mut chain = Chain::greeted(Policy::default(), 4);
        chain.write(b"PKDECRYPT\nD x\n");
        chain.read.clear();
        chain.gpg_agent.out.extend_from_slice(answer);
        chain.run();
        assert_eq!(chain.read, answer);
        assert_eq!(chain.agent.state(), agent::State::Disconnected);
        assert_eq!(chain.agent.error(), Some(&SessionError::InquiryEndedEarly));
        assert_eq!(chain.request.state(), request::State::Disconnected);
    }
}

/// libassuan up to 2.2.1 answers as soon as there is too much data, and reads the rest as commands.
#[test]
fn a_command_never_gets_the_answer_of_another_one_behind_an_agent_that_ends_inquiries_early() {
    for end in ["END", "CAN", "RESET"] {
        let lines = format!("PKDECRYPT\nD 12\nD 3\nD 4\n{end}\nSIGKEY {KEY}\nPKSIGN\n");
        for cut in 0..=lines.len() {
            let mut chain = Chain::greeted(Policy::default(), usize::MAX);
            chain.gpg_agent.most_data = 2;
            chain.write(&lines.as_bytes()[..cut]);
            chain.write(&lines.as_bytes()[cut..]);
            let commands = chain.gpg_agent.commands();
            assert!(!commands.iter().any(|line| line.contains("KEY ")), "{commands:?}");
            assert_eq!(chain.agent.error(), Some(&SessionError::InquiryEndedEarly), "{cut}");
            assert!(!chain.read.windows(3).any(|part| part == b"OK\n"), "{cut}");
        }
    }
}

#[test]
fn an_agent_that_goes_away_after_an_inquiry_owes_no_answer() {
    let mut session = ready_agent_session(Policy::default());
    let now = Instant::now();
    session.client_bytes(b"PKDECRYPT\n");
    session.agent_took(usize::MAX, now);
    session.agent_bytes(b"INQUIRE CIPHERTEXT\n");
    session.client_bytes(b"D x\nEND\n");
    session.agent_took(usize::MAX, now);
    session.client_took(usize::MAX);
    session.agent_bytes(b"D y\nOK\n");
    session.agent_closed(false);
    assert_eq!(session.to_client(), b"D y\nOK\n");
}
