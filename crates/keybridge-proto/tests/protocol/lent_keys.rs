//! What a client hears of keys: those that are lent, and no others.

use crate::chain::{Chain, FORBIDDEN, KEY, ready_agent_session};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{AgentSession, Limits, Session};
use keybridge_proto::socket_file::Opening;
use std::sync::Arc;
use std::time::Instant;

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
