//! The decoders of the ssh lane, and what answers without an agent: any bytes, in any pieces.
#![no_main]

use keybridge_proto::ssh::{
    Frame, FrameCutter, PendingRequests, Piece, Reading, RefusingAgent, Request, Response,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (piece, client, agent) = input;
    let piece = usize::from(piece) + 1;
    let requests = whole_frames(client);
    assert_eq!(requests, cut_frames(client, piece));

    let mut refuser = RefusingAgent::default();
    let mut answers = 0;
    for mut part in client.chunks(piece) {
        while !part.is_empty() && !refuser.is_over() {
            part = &part[refuser.client_bytes(part)..];
            answers += refuser.to_client().len() / 5;
            refuser.client_took(refuser.to_client().len());
        }
    }
    assert_eq!(answers, requests + usize::from(refuser.is_over()));

    let mut passage = PendingRequests::default();
    for part in client.chunks(piece) {
        passage.client_sent(part);
    }
    for part in agent.chunks(piece) {
        passage.agent_sent(part);
    }
    if let Some(mut refuser) = passage.refuse() {
        let mut owed = 0;
        while !refuser.to_client().is_empty() {
            owed += refuser.to_client().len() / 5;
            refuser.client_took(refuser.to_client().len());
        }
        assert_eq!(owed + whole_frames(agent), requests);
    }
});

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
