//! Properties of the ssh lane that hold for any bytes.

use std::time::Instant;

use crate::ssh_binds::BIND;
use crate::ssh_talk::{FAILURE, Talk, extension, frame, login, message, sign};
use allocation_counter::measure;
use keybridge_proto::OperationSet;
use keybridge_proto::gate::{self, Policy, Verdict};
use keybridge_proto::session::{Limits, Session};
use keybridge_proto::ssh::{
    Frame, FrameCutter, MAX_FRAME, MessageType, Piece, Reading, RelaySession, Request, SshSession,
    Summary,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// What OpenSSH holds of one frame, and the most that we may hold of all.
const BOUND: u64 = 256 * 1024;

/// Something that happens to a session.
#[derive(Debug, Clone)]
enum Happening {
    ClientBytes(Vec<u8>),
    AgentBytes(Vec<u8>),
    AgentTook(usize),
    ClientTook(usize),
}

/// Bytes that are often a frame, of any size up to the cap and a little over it. Their first field
/// reaches anywhere, or nearly to the end.
fn frame_like() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![2 => Just(13_u8), 1 => prop_oneof![Just(11), Just(17), Just(27), Just(14), any::<u8>()]];
    let size = prop_oneof![0..100_usize, 0..80_000_usize, 0..MAX_FRAME + 10];
    let field = prop_oneof![(0..300_000_usize).prop_map(Some), Just(None)];
    let length_error = prop_oneof![9 => Just(0_i32), 1 => -2..3_i32];
    (kind, size, field, length_error).prop_map(|(kind, size, field, error)| {
        let length = u32::try_from(size + 1).unwrap().saturating_add_signed(error);
        let field = u32::try_from(field.unwrap_or(size.saturating_sub(20))).unwrap();
        let head = length.to_be_bytes().into_iter().chain([kind]);
        let body = field.to_be_bytes().into_iter().chain(std::iter::repeat(7)).take(size);
        head.chain(body).collect()
    })
}

fn happening() -> impl Strategy<Value = Happening> {
    let bytes = prop_oneof![frame_like(), vec(any::<u8>(), 0..200)];
    let took = prop_oneof![Just(0_usize), 0..10_000_usize, Just(usize::MAX)];
    prop_oneof![
        bytes.clone().prop_map(Happening::ClientBytes),
        bytes.prop_map(Happening::AgentBytes),
        took.clone().prop_map(Happening::AgentTook),
        took.prop_map(Happening::ClientTook),
    ]
}

fn session() -> SshSession {
    let mut session = SshSession::new(Policy::default(), Limits::default());
    session.connect_requested(Instant::now());
    session.agent_connected();
    session
}

fn happen(session: &mut SshSession, happening: &Happening, now: Instant) {
    match happening {
        Happening::ClientBytes(bytes) => assert!(session.client_bytes(bytes) <= bytes.len()),
        Happening::AgentBytes(bytes) => assert!(session.agent_bytes(bytes) <= bytes.len()),
        Happening::AgentTook(count) => {
            session.agent_took((*count).min(session.to_agent().len()), now);
        }
        Happening::ClientTook(count) => {
            session.client_took((*count).min(session.to_client().len()));
        }
    }
}

/// A request of some kind, small enough for many of them.
fn request() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Request::LIST.to_vec()),
        vec(any::<u8>(), 0..200).prop_map(|key| sign(&key, &login())),
        vec(any::<u8>(), 0..20).prop_map(|namespace| sign(b"key", &message(&namespace))),
        vec(any::<u8>(), 0..20).prop_map(|name| extension(&name, b"x")),
        Just(BIND.to_vec()),
        (any::<u8>().prop_map(MessageType), vec(any::<u8>(), 0..300))
            .prop_filter("a client that answers is ended", |(kind, _)| !kind.is_answer())
            .prop_map(|(kind, body)| frame(kind, &body)),
    ]
}

/// What the gate says of a whole frame.
fn verdict(bytes: &[u8]) -> Verdict {
    let (frame, _) = Frame::parse(bytes).unwrap().unwrap();
    match Request::read(frame.kind(), frame.body(), frame.body().len()) {
        Ok(Reading::Known(request)) => {
            gate::decide_ssh(&Policy::default(), OperationSet::default(), &request)
        }
        Ok(Reading::NeedsMore) => panic!("the whole frame is there"),
        Err(_) => Verdict::Deny,
    }
}

proptest! {
    #[test]
    fn no_input_makes_a_session_hold_more_than_256_kib(happenings in vec(happening(), 0..12)) {
        let now = Instant::now();
        let held = measure(|| {
            let mut session = session();
            for happening in &happenings {
                happen(&mut session, happening, now);
            }
        });
        prop_assert!(held.bytes_max <= BOUND, "{}", held.bytes_max);
    }

    #[test]
    fn no_input_makes_a_relay_hold_more_than_two_outboxes(
        inputs in vec(frame_like(), 0..8),
        is_agent_there in any::<bool>(),
    ) {
        let held = measure(|| {
            let mut relay = RelaySession::connected();
            if is_agent_there {
                relay.agent_connected();
            } else {
                relay.agent_unreachable("there is none");
            }
            for bytes in &inputs {
                relay.client_bytes(bytes);
                relay.agent_bytes(bytes);
                relay.agent_took(relay.to_agent().len(), Instant::now());
            }
        });
        prop_assert!(held.bytes_max <= 160 * 1024, "{}", held.bytes_max);
    }

    #[test]
    fn the_agent_gets_what_the_gate_allows_and_each_request_one_answer_in_order(
        requests in vec(request(), 0..12),
        chunk in 1..600_usize,
    ) {
        let mut talk = Talk::connected(Policy::default(), chunk);
        let mut for_the_agent = Vec::new();
        let mut for_the_client = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            if verdict(request) == Verdict::Allow {
                let answer = frame(MessageType::SIGN_RESPONSE, &[u8::try_from(number).unwrap(); 30]);
                for_the_agent.extend_from_slice(request);
                for_the_client.extend_from_slice(&answer);
                talk.answers.push_back(answer);
            } else if request[4] == MessageType::EXTENSION.0 {
                for_the_client.extend(frame(MessageType::EXTENSION_FAILURE, b""));
            } else {
                for_the_client.extend(FAILURE);
            }
        }
        talk.write(&requests.concat());
        prop_assert!(talk.agent_got == for_the_agent);
        prop_assert!(talk.client_got == for_the_client);
        prop_assert_eq!(talk.session.error(), None);
    }

    #[test]
    fn frames_do_not_depend_on_how_they_arrive(
        frames in vec((any::<u8>(), vec(any::<u8>(), 0..300)), 0..6),
        piece in 1..200_usize,
    ) {
        let stream: Vec<u8> =
            frames.iter().flat_map(|(kind, body)| frame(MessageType(*kind), body)).collect();
        let mut cutter = FrameCutter::default();
        let mut seen: Vec<(u8, Vec<u8>)> = Vec::new();
        for mut rest in stream.chunks(piece) {
            while !rest.is_empty() {
                let cut = cutter.cut(rest).unwrap();
                match cut.piece {
                    Some(Piece::Start { kind, .. }) => seen.push((kind.0, Vec::new())),
                    Some(Piece::Part(part)) => seen.last_mut().unwrap().1.extend_from_slice(part),
                    None => {}
                }
                rest = &rest[cut.taken..];
            }
        }
        prop_assert_eq!(seen, frames);
        prop_assert!(cutter.is_between_frames());
    }

    #[test]
    fn any_bytes_can_be_read_and_summed_up(kind in any::<u8>(), bytes in vec(any::<u8>(), 0..64), more in 0..64_usize) {
        let known = |here| Request::read(MessageType(kind), here, bytes.len() + more);
        if let Ok(Reading::Known(request)) = known(&bytes) {
            // More bytes don't change what is known.
            let longer = [&bytes[..], &vec![0; more]].concat();
            let again = Request::read(MessageType(kind), &longer, longer.len());
            prop_assert_eq!(again, Ok(Reading::Known(request)));
        }
        let summary = Summary::new(MessageType(kind), bytes.len()).to_string();
        prop_assert!(summary.is_ascii() && summary.len() < 64);
    }
}

#[test]
fn the_largest_beginning_of_a_request_stays_within_the_bound() {
    let requests: Vec<Vec<u8>> =
        [65_000, 65_500, 65_535, 70_000, 260_000].map(|size| sign(&vec![1; size], b"x")).into();
    let answer = vec![0x00, 0x04, 0x00, 0x00, 14, 1, 2, 3];
    for request in requests {
        for piece in [1, 1000, 4096, 65_536, request.len()] {
            let held = measure(|| {
                let mut session = session();
                for part in request.chunks(piece) {
                    session.client_bytes(part);
                }
                session.agent_bytes(&answer);
            });
            assert!(held.bytes_max <= BOUND, "{}", held.bytes_max);
        }
    }
}
