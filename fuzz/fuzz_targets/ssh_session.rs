//! The session of the ssh lane between a hostile target and a hostile agent. Whatever happens, no
//! request that the gate denies reaches the agent, not even its first byte, and the client gets no
//! answer that it didn't ask for.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use keybridge_proto::gate::{self, Message, Policy, Verdict};
use keybridge_proto::session::Limits;
use keybridge_proto::ssh::{Cut, FrameCutter, Kind, Piece, Reading, Request, Session};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Happening<'a> {
    ClientBytes(&'a [u8]),
    AgentBytes(&'a [u8]),
    /// A request with a right length.
    Frame(u8, &'a [u8]),
    /// One whose first field is so long.
    Field(u8, u32, &'a [u8]),
    /// Bytes that a fuzzer seldom finds by itself.
    Known(u8),
    AgentTook(u16),
    ClientTook(u16),
    ClientEof,
    ClientClosed(bool),
    AgentClosed(bool),
    Pass(u8),
    CleanedUp(bool),
}

/// A beginning of 64 KiB, an outbox of 16 KiB, and a piece over.
const TO_AGENT: usize = 90 * 1024;
const TO_CLIENT: usize = 22 * 1024;

const ANSWER: [u8; 7] = [0, 0, 0, 3, 14, 1, 2];
const BIND: &[u8] = b"\0\0\0\x1d\x1b\0\0\0\x18session-bind@openssh.com";
const SIGN: &[u8] = b"\0\0\0\x1a\x0d\0\0\0\x01k\0\0\0\x0cSSHSIG\0\0\0\x02gt\0\0\0\0";

fuzz_target!(|input: (bool, bool, bool, Vec<Happening<'_>>)| {
    let (allow_ssh_changes, reached, limited, happenings) = input;
    let policy = Policy { allow_ssh_changes, ..Policy::default() };
    let limits =
        Limits { response: limited.then_some(Duration::from_secs(9)), ..Limits::default() };
    let mut now = Instant::now();
    let mut session = Session::new(policy.clone(), limits);
    session.connect_requested(now);
    if reached {
        session.agent_connected();
    } else {
        session.agent_unreachable("fuzz");
    }
    let mut asked = Side::default();
    let mut sent = Side::default();
    let mut answered = Side::default();
    for happening in happenings {
        let mut client = |session: &mut Session, bytes: &[u8]| {
            let taken = session.client_bytes(bytes);
            asked.follow(&bytes[..taken], |_, _, _| {});
        };
        match happening {
            Happening::ClientBytes(bytes) => client(&mut session, bytes),
            Happening::Frame(kind, body) => client(&mut session, &frame(kind, body)),
            Happening::Field(kind, length, rest) => {
                client(&mut session, &frame(kind, &[&length.to_be_bytes(), rest].concat()));
            }
            Happening::AgentBytes(bytes) => assert!(session.agent_bytes(bytes) <= bytes.len()),
            Happening::Known(which) => match which % 6 {
                0 => client(&mut session, &Request::LIST),
                1 => client(&mut session, BIND),
                2 => client(&mut session, SIGN),
                3 => client(&mut session, &frame(17, &[1; 20])),
                4 => client(&mut session, &frame(13, &vec![0; 200_000])),
                _ => drop(session.agent_bytes(&ANSWER)),
            },
            Happening::AgentTook(count) => {
                let count = usize::from(count).min(session.to_agent().len());
                sent.follow(&session.to_agent()[..count], |kind, here, size| {
                    match Request::read(kind, here, size) {
                        Ok(Reading::Known(request)) => {
                            let message = Message::Ssh(request);
                            let request = gate::Request { target: "", message };
                            let verdict = gate::decide(&policy, &request);
                            assert_eq!(verdict, Verdict::Allow, "the gate was passed by");
                        }
                        Ok(Reading::NeedsMore) => {}
                        Err(error) => panic!("a request that can't be judged was sent: {error}"),
                    }
                });
                session.agent_took(count, now);
            }
            Happening::ClientTook(count) => {
                let count = usize::from(count).min(session.to_client().len());
                answered.follow(&session.to_client()[..count], |_, _, _| {});
                session.client_took(count);
            }
            Happening::ClientEof => session.client_eof(),
            Happening::ClientClosed(had_error) => session.client_closed(had_error),
            Happening::AgentClosed(had_error) => session.agent_closed(had_error),
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
        assert!(session.to_agent().len() <= TO_AGENT && session.to_client().len() <= TO_CLIENT);
        assert!(reached || sent.bytes == 0);
        assert!(answered.begun <= asked.begun, "an answer to nothing");
    }
});

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(250_000)];
    [&u32::try_from(body.len() + 1).unwrap().to_be_bytes()[..], &[kind], body].concat()
}

/// The frames that went one way.
#[derive(Default)]
struct Side {
    cutter: FrameCutter,
    /// How many have begun, with their first byte.
    begun: usize,
    bytes: usize,
    kind: u8,
    size: usize,
    body: Vec<u8>,
    lost: bool,
}

impl Side {
    /// Tells of each frame as it grows.
    fn follow(&mut self, mut bytes: &[u8], mut look: impl FnMut(Kind, &[u8], usize)) {
        self.bytes += bytes.len();
        while !bytes.is_empty() && !self.lost {
            self.begun += usize::from(self.cutter.is_between_frames());
            let Ok(Cut { taken, piece }) = self.cutter.cut(bytes) else {
                self.lost = true;
                return;
            };
            match piece {
                None => {}
                Some(Piece::Start { kind, size }) => {
                    (self.kind, self.size) = (kind.0, size);
                    self.body.clear();
                    look(kind, &[], size);
                }
                Some(Piece::Part(part)) => {
                    self.body.extend_from_slice(part);
                    look(Kind(self.kind), &self.body, self.size);
                }
            }
            bytes = &bytes[taken..];
        }
    }
}
