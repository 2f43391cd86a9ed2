//! The agent session between a hostile target and a hostile agent. Whatever happens, no line that
//! the gate denies reaches the agent, and nothing reaches it before the socket has proven itself.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use keybridge_proto::Secret;
use keybridge_proto::assuan::{LineBuffer, RequestLine};
use keybridge_proto::gate::{self, AgentSocket, Message, Policy, Request, Verdict};
use keybridge_proto::session::{AgentSession, Limits};
use keybridge_proto::socket_file::Opening;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Happening<'a> {
    ClientBytes(&'a [u8]),
    AgentBytes(&'a [u8]),
    /// Bytes that a fuzzer seldom finds by itself.
    Known(u8),
    AgentTook(u16),
    ClientTook(u16),
    ClientEof,
    ClientClosed(bool),
    AgentClosed(bool),
    AgentUnreachable,
    Pass(u8),
    CleanedUp(bool),
}

#[derive(Arbitrary, Debug)]
enum Socket {
    Unix,
    Native,
    Cygwin,
}

const BOUND: usize = 16 * 1024 + 2048;
const KEYINFO: &[u8] = b"KEYINFO 0123456789ABCDEF0123456789ABCDEF01234567\n";
const FORBIDDEN: &[u8] = b"ERR 67109115 Forbidden <GPG Agent>\n";
const NONCE: [u8; 16] = *b"0123456789abcdef";

fuzz_target!(|input: (bool, bool, bool, bool, Socket, Vec<Happening<'_>>)| {
    let (main, allow_get_passphrase, heal, limited, socket, happenings) = input;
    let policy = Policy {
        socket: if main { AgentSocket::Main } else { AgentSocket::Extra },
        allow_get_passphrase,
        heal,
        ..Policy::default()
    };
    let limits =
        Limits { response: limited.then_some(Duration::from_secs(9)), ..Limits::default() };
    let mut now = Instant::now();
    let mut session = AgentSession::new("fuzz", policy.clone(), limits);
    session.connect_requested(now);
    let (opening, mut opening_bytes) = match socket {
        Socket::Unix => (Opening::none(), 0),
        Socket::Native => (Opening::native(&Secret::new(NONCE)), 16),
        Socket::Cygwin => (Opening::cygwin(&Secret::new(NONCE), 1, 2, 3), 24),
    };
    session.agent_connected(opening, now);
    let mut sent = LineBuffer::default();
    let mut proof_seen = main;
    for happening in happenings {
        match happening {
            Happening::ClientBytes(bytes) => assert!(session.client_bytes(bytes) <= bytes.len()),
            Happening::AgentBytes(bytes) => assert!(session.agent_bytes(bytes) <= bytes.len()),
            Happening::Known(which) => match which % 10 {
                8 => drop(session.client_bytes(KEYINFO)),
                9 => drop(session.agent_bytes(FORBIDDEN)),
                0 => drop(session.agent_bytes(b"OK\n")),
                1 => drop(session.agent_bytes(&NONCE)),
                2 => drop(session.agent_bytes(b"INQUIRE X\n")),
                3 => drop(session.client_bytes(b"GET_PASSPHRASE x\n")),
                4 => drop(session.client_bytes(b"PKDECRYPT\n")),
                5 => drop(session.client_bytes(b"END\n")),
                6 => drop(session.agent_bytes(b"ERR 1 x\n")),
                _ => drop(session.client_bytes(b"D x\n")),
            },
            Happening::AgentTook(count) => {
                let count = usize::from(count).min(session.to_agent().len());
                let mut bytes = &session.to_agent()[..count];
                let skip = opening_bytes.min(bytes.len());
                opening_bytes -= skip;
                bytes = &bytes[skip..];
                while !bytes.is_empty() {
                    let cut = sent.cut(bytes).expect("a line over the limit was sent");
                    if let Some(line) = cut.line {
                        if proof_seen {
                            let line = RequestLine::parse(line).expect("a NUL was sent");
                            let message = Message::Gpg(line);
                            let verdict = gate::decide(&policy, &Request { target: "", message });
                            assert_ne!(verdict, Verdict::Deny, "the gate was passed by");
                        } else {
                            assert_eq!(line, b"GETINFO restricted\n");
                            proof_seen = true;
                        }
                    }
                    bytes = &bytes[cut.taken..];
                }
                session.agent_took(count, now);
            }
            Happening::ClientTook(count) => {
                session.client_took(usize::from(count).min(session.to_client().len()));
            }
            Happening::ClientEof => session.client_eof(),
            Happening::ClientClosed(had_error) => session.client_closed(had_error),
            Happening::AgentClosed(had_error) => session.agent_closed(had_error),
            Happening::AgentUnreachable => session.agent_unreachable("fuzz"),
            Happening::Pass(seconds) => {
                now += Duration::from_secs(seconds.into());
                session.timeout(now);
            }
            Happening::CleanedUp(well) => {
                if session.cleanup().is_some() {
                    session.cleanup_done(if well { Ok(()) } else { Err("fuzz") });
                }
            }
        }
        assert!(session.to_agent().len() <= BOUND && session.to_client().len() <= BOUND);
    }
});
