//! The agent session between a hostile target and a hostile agent. Whatever happens, only lines of
//! the gate's table reach the agent, as an oracle knows them that was written on its own; no key that
//! isn't lent is named there, and none is used for what it isn't lent for. Nothing reaches the agent
//! before the socket has proven itself.
#![no_main]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use keybridge_proto::Secret;
use keybridge_proto::assuan::LineBuffer;
use keybridge_proto::gate::{AgentSocket, KeyGrip, LentKeys, Policy, Rights, Use};
use keybridge_proto::session::{AgentSession, Limits, Session};
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

const BOUND: usize = 32 * 1024 + 2048;
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
    let mut session = AgentSession::new(policy, lent(), limits);
    session.connect_requested(now);
    let (opening, mut opening_bytes) = match socket {
        Socket::Unix => (Opening::none(), 0),
        Socket::Native => (Opening::native(&Secret::new(NONCE)), 16),
        Socket::Cygwin => (Opening::cygwin(&Secret::new(NONCE), 1, 2, 3), 24),
    };
    session.agent_connected(opening, now);
    let mut sent = LineBuffer::default();
    let mut proof_seen = main;
    let mut oracle =
        Oracle { allow_get_passphrase: allow_get_passphrase && !main, ..Oracle::default() };
    for happening in happenings {
        match happening {
            Happening::ClientBytes(bytes) => assert!(session.client_bytes(bytes) <= bytes.len()),
            Happening::AgentBytes(bytes) => assert!(session.agent_bytes(bytes) <= bytes.len()),
            Happening::Known(which) => match which % 40 {
                0 => drop(session.agent_bytes(b"OK\n")),
                1 => drop(session.agent_bytes(&NONCE)),
                2 => drop(session.agent_bytes(b"INQUIRE X\n")),
                3 => drop(session.agent_bytes(FORBIDDEN)),
                4 => drop(session.agent_bytes(b"ERR 1 x\n")),
                which => {
                    let line = LINES[usize::from(which) % LINES.len()];
                    session.client_bytes(format!("{line}\n").as_bytes());
                }
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
                            oracle.check(line);
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

const SIGNS: &str = "1111111111111111111111111111111111111111";
const DECRYPTS: &str = "2222222222222222222222222222222222222222";
const X509: &str = "ABABABABABABABABABABABABABABABABABABABAB";

fn lent() -> Arc<LentKeys> {
    let rights = |sign, decrypt| Rights { sign, decrypt };
    let keys = [
        (SIGNS, rights(Use::OpenPgp, Use::Denied)),
        (DECRYPTS, rights(Use::Denied, Use::OpenPgp)),
        (X509, rights(Use::X509, Use::X509)),
    ];
    let keys = keys.map(|(grip, rights)| (KeyGrip::parse(grip.as_bytes()).unwrap(), rights));
    Arc::new(keys.into_iter().collect())
}

/// Lines that lead somewhere; a fuzzer seldom finds them by itself.
const LINES: &[&str] = &[
    "SIGKEY 1111111111111111111111111111111111111111",
    "SETKEY 2222222222222222222222222222222222222222",
    "setkey abababababababababababababababababababab",
    "SIGKEY 9999999999999999999999999999999999999999",
    "SETKEY --another 2222222222222222222222222222222222222222",
    "SETKEY --another 9999999999999999999999999999999999999999",
    "SIGKEY 1111111111111111111111111111111111111111 x",
    "PKSIGN",
    "pksign\t",
    "PKDECRYPT",
    "PKDECRYPT --kem=PGP",
    "PKDECRYPT --kem=CMS",
    "SETHASH --inquire",
    "SETHASH 8 0123456789ABCDEF0123456789ABCDEF",
    "RESET",
    "END",
    "CAN",
    "D x",
    "INPUT FD=3",
    "GET_PASSPHRASE x",
    "KEYINFO 1111111111111111111111111111111111111111",
    "KEYINFO 9999999999999999999999999999999999999999",
    "HAVEKEY 9999999999999999999999999999999999999999 1111111111111111111111111111111111111111",
    "HAVEKEY --list",
    "BYE",
];

/// Knows what may reach the agent.
#[derive(Default)]
struct Oracle {
    allow_get_passphrase: bool,
    /// What the agent was told since the last RESET.
    keys: Vec<String>,
    raw_data: bool,
}

impl Oracle {
    fn check(&mut self, line: &[u8]) {
        if line.starts_with(b"D ") {
            return;
        }
        let line = std::str::from_utf8(line).unwrap_or("SETKEYDESC x").to_ascii_uppercase();
        let words: Vec<&str> =
            line.split([' ', '\t', '\r', '\n']).filter(|w| !w.is_empty()).collect();
        let is_lent = |grip: &str| [SIGNS, DECRYPTS, X509].contains(&grip);
        let hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        match words.as_slice() {
            ["NOP" | "BYE" | "END" | "CAN"] | ["SETKEYDESC", _] => {}
            ["GETINFO", "VERSION" | "S2K_COUNT" | "RESTRICTED"] => {}
            ["GETINFO", "CMD_HAS_OPTION", "GET_PASSPHRASE", "REPEAT" | "NEWSYMKEY"] => {}
            ["OPTION", option] => assert!(option.starts_with("AGENT-AWARENESS="), "{line}"),
            ["ISTRUSTED", fingerprint] => assert!(fingerprint.len() == 40 && hex(fingerprint)),
            ["SETHASH", "--INQUIRE"] => {
                assert_eq!(self.keys.last().map(String::as_str), Some(X509));
                self.raw_data = true;
            }
            ["SETHASH", _, hash] => assert!(hash.len() >= 32 && hex(hash), "{line}"),
            // The one that heals.
            ["HAVEKEY" | "KEYINFO" | "READKEY", grip] => assert!(is_lent(grip), "{line}"),
            ["RESET"] => self.keys.clear(),
            ["SIGKEY" | "SETKEY", grip] | ["SIGKEY" | "SETKEY", "--ANOTHER", grip] => {
                assert!(is_lent(grip), "{line}");
                self.keys.push((*grip).to_owned());
            }
            ["PKSIGN"] => {
                // Some key that was chosen signs, and only an X.509 key after raw data.
                let may = |key: &String| key == X509 || (key == SIGNS && !self.raw_data);
                assert!(self.keys.iter().any(may), "{line}");
            }
            ["PKDECRYPT"] | ["PKDECRYPT", "--KEM=PGP" | "--KEM=PQC-PGP"] => {
                assert!(self.keys.iter().any(|key| key != SIGNS), "{line}");
            }
            ["PKDECRYPT", "--KEM=CMS"] => assert!(self.keys.iter().any(|key| key == X509)),
            ["GET_PASSPHRASE", ..] => assert!(self.allow_get_passphrase, "{line}"),
            _ => panic!("the gate was passed by: {line}"),
        }
    }
}
