//! The session of the ssh lane between a hostile target and a hostile agent. Whatever happens, no
//! request that the gate denies reaches the agent, not even its first byte, and the client gets no
//! answer that it didn't ask for, and no key in a list that isn't lent.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use keybridge_proto::OperationSet;
use keybridge_proto::gate::{self, Policy, Verdict};
use keybridge_proto::session::{Limits, Session};
use keybridge_proto::ssh::{
    Cut, Fingerprint, Frame, FrameCutter, KeySelection, MessageType, Piece, Reading, Request,
    Response, SshSession,
};
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
/// The same with a list of keys, which is held until it is narrowed.
const TO_CLIENT_NARROWED: usize = TO_CLIENT + 256 * 1024;

const ANSWER: [u8; 7] = [0, 0, 0, 3, 14, 1, 2];
const ADD: &[u8] = b"\0\0\0\x0bssh-ed25519\0\0\0\x01p\0\0\0\x01s\0\0\0\x01c\xff\0\0\0\x17sk-provider@openssh.com\0\0\0\x01x";
const BIND: &[u8] =
    include_bytes!("../../crates/keybridge-proto/tests/golden/ssh/extension-session-bind");
const LIST: &[u8] = b"\0\0\0\x17\x0c\0\0\0\x02\0\0\0\x01k\0\0\0\0\0\0\0\x01x\0\0\0\0";
const SIGN: &[u8] = b"\0\0\0\x1a\x0d\0\0\0\x01k\0\0\0\x0cSSHSIG\0\0\0\x02gt\0\0\0\0";

fuzz_target!(|input: (bool, bool, bool, Option<&str>, Vec<Happening<'_>>)| {
    let (allow_ssh_changes, reached, limited, chosen, happenings) = input;
    let lent = Fingerprint::of(b"k").map(|key| key.to_string()).unwrap_or_default();
    let ssh_keys = match chosen {
        None => KeySelection::default(),
        Some(pattern) => {
            let Ok(chosen) = KeySelection::of_words([&*lent, pattern]) else { return };
            let list = Frame::parse(LIST).ok().flatten().map(|(frame, _)| Response::read(&frame));
            let Some(Ok(Response::Identities(identities))) = list else { panic!("no list") };
            chosen.resolved(&identities)
        }
    };
    let most_to_client = if ssh_keys.is_all() { TO_CLIENT } else { TO_CLIENT_NARROWED };
    let policy = Policy { allow_ssh_changes, ssh_keys, ..Policy::default() };
    let limits =
        Limits { response: limited.then_some(Duration::from_secs(9)), ..Limits::default() };
    let mut now = Instant::now();
    let mut session = SshSession::new(policy.clone(), limits);
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
        let mut client = |session: &mut SshSession, bytes: &[u8]| {
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
            Happening::Known(which) => match which % 8 {
                0 => client(&mut session, &Request::LIST),
                1 => client(&mut session, BIND),
                2 => client(&mut session, SIGN),
                3 => client(&mut session, &frame(17, &[1; 20])),
                4 => client(&mut session, &frame(13, &vec![0; 200_000])),
                5 => client(&mut session, &frame(17, ADD)),
                6 => drop(session.agent_bytes(LIST)),
                _ => drop(session.agent_bytes(&ANSWER)),
            },
            Happening::AgentTook(count) => {
                let count = usize::from(count).min(session.to_agent().len());
                sent.follow(&session.to_agent()[..count], |kind, here, size| {
                    match Request::read(kind, here, size) {
                        Ok(Reading::Known(request)) => {
                            let verdict =
                                gate::decide_ssh(&policy, OperationSet::default(), &request);
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
                answered.follow(&session.to_client()[..count], |kind, here, size| {
                    if kind != MessageType::IDENTITIES_ANSWER || here.len() < size {
                        return;
                    }
                    // A hostile agent may say anything where nothing is narrowed.
                    let list = Frame::new(kind, here).map(|frame| Response::read(&frame));
                    match list {
                        Ok(Ok(Response::Identities(keys))) => {
                            assert!(keys.iter().all(|one| policy.ssh_keys.lends(one.key)));
                        }
                        _ => assert!(policy.ssh_keys.is_all(), "a list that can't be read"),
                    }
                });
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
        assert!(
            session.to_agent().len() <= TO_AGENT && session.to_client().len() <= most_to_client
        );
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
    fn follow(&mut self, mut bytes: &[u8], mut look: impl FnMut(MessageType, &[u8], usize)) {
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
                    look(MessageType(self.kind), &self.body, self.size);
                }
            }
            bytes = &bytes[taken..];
        }
    }
}
