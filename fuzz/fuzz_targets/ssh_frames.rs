//! The decoders of the ssh lane, and what answers without an agent: any bytes, in any pieces.
#![no_main]

use std::time::Instant;

use keybridge_proto::session::Session;
use keybridge_proto::ssh::{Frame, FrameCutter, Piece, Reading, RelaySession, Request, Response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (piece, client, agent) = input;
    let piece = usize::from(piece) + 1;
    let requests = whole_frames(client);
    assert_eq!(requests, cut_frames(client, piece));

    let mut refusing = RelaySession::connected();
    refusing.agent_unreachable("fuzz");
    let mut answers = 0;
    for part in client.chunks(piece) {
        answers += fed(&mut refusing, part);
    }
    assert_eq!(answers, requests + usize::from(refusing.is_over()));

    let mut relay = RelaySession::connected();
    relay.agent_connected();
    for part in client.chunks(piece) {
        fed(&mut relay, part);
    }
    // A frame that isn't one is a request that the host answers.
    let asked = requests + usize::from(!relay.takes_client_bytes());
    for part in agent.chunks(piece) {
        relay.agent_bytes(part);
        relay.client_took(relay.to_client().len());
    }
    if !relay.is_over() {
        relay.agent_closed(true);
        let owed = failures(&mut relay);
        // None after a part of an answer.
        assert!(owed == 0 || owed + whole_frames(agent) == asked);
    }
});

/// Gives a relay bytes of its client, as far as it takes any. Returns how many failures came of it.
fn fed(relay: &mut RelaySession, mut part: &[u8]) -> usize {
    let mut answers = 0;
    while !part.is_empty() && relay.takes_client_bytes() {
        part = &part[relay.client_bytes(part)..];
        relay.agent_took(relay.to_agent().len(), Instant::now());
        answers += failures(relay);
    }
    answers
}

/// Takes what a relay has for its client: failures. Returns how many.
fn failures(relay: &mut RelaySession) -> usize {
    let mut count = 0;
    while !relay.to_client().is_empty() {
        count += relay.to_client().len() / 5;
        relay.client_took(relay.to_client().len());
    }
    count
}

/// How many whole frames the bytes begin with, each of them read.
fn whole_frames(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some((frame, taken))) = Frame::parse(bytes) {
        assert_eq!(frame.encode(), &bytes[..taken]);
        let _ = Response::read(&frame);
        let body = frame.body();
        let whole = Request::read(frame.kind(), body, body.len());
        assert_ne!(whole, Ok(Reading::NeedsMore));
        for half in [0, body.len() / 2] {
            let part = Request::read(frame.kind(), &body[..half], body.len());
            assert!(part == whole || part == Ok(Reading::NeedsMore));
        }
        count += 1;
        bytes = &bytes[taken..];
    }
    count
}

/// The same, in pieces.
fn cut_frames(bytes: &[u8], piece: usize) -> usize {
    let mut cutter = FrameCutter::default();
    let mut count = 0;
    for mut part in bytes.chunks(piece) {
        while !part.is_empty() {
            let Ok(cut) = cutter.cut(part) else { return count };
            assert!(cut.taken > 0);
            if let Some(Piece::Part(bytes)) = cut.piece {
                assert_eq!(bytes.len(), cut.taken);
            }
            count += usize::from(cutter.is_between_frames());
            part = &part[cut.taken..];
        }
    }
    count
}
