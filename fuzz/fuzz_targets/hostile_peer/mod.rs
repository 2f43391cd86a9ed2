//! One end of the mux, an owner that uses it in any order, and a peer that keeps no rule.

use arbitrary::Arbitrary;
use keybridge_proto::Lane;
use keybridge_proto::mux::{
    Config, End, Endpoint, Event, FLOOR, LINK_WINDOW, StreamId, VERSION_1_LINK_BOUND, Version,
    WINDOW,
};

/// What the peer or the owner of the link does.
#[derive(Arbitrary, Debug)]
pub enum Act<'a> {
    /// The peer sends bytes.
    Bytes(&'a [u8]),
    /// The peer sends a frame whose length is right, with a payload repeated up to a size.
    Frame {
        kind: u8,
        id: u8,
        payload: &'a [u8],
        repeat: u8,
    },
    Hello,
    Open {
        id: u8,
        lane: u8,
    },
    Credit {
        id: u8,
        amount: u32,
    },
    /// The owner acts on one of the streams it knows.
    Write {
        which: u8,
        size: u16,
    },
    Consume {
        which: u8,
        size: u16,
    },
    Finish(u8),
    Close(u8),
    OpenOne,
    Keys {
        size: u16,
        end: bool,
    },
    Transmit,
}

const STREAMS: usize = 8;

/// Plays the acts and checks the bounds after each of them.
pub fn play(end: End, version: Version, acts: Vec<Act<'_>>) {
    let mut config = Config::new(end, version, &[Lane::Gpg, Lane::Git]);
    config.max_streams = STREAMS;
    config.version_1_keys = Some(vec![b'k'; 100_000]);
    let mut link = Endpoint::new(config).expect("a link");
    let mut known = vec![StreamId::KEYS];
    let mut out = Vec::new();
    let bound = match version {
        Version::One => VERSION_1_LINK_BOUND + (1 << 20),
        Version::Two => LINK_WINDOW + (STREAMS + 1) * FLOOR,
    };
    for act in acts {
        let pick = |which: u8| known[usize::from(which) % known.len()];
        match act {
            Act::Bytes(bytes) => drop(link.receive(bytes)),
            Act::Frame { kind, id, payload, repeat } => {
                let payload = payload.repeat(usize::from(repeat));
                drop(link.receive(&frame(kind, id.into(), &payload)));
            }
            Act::Hello => drop(link.receive(&frame(7, 0, b"2 0.1.0"))),
            Act::Open { id, lane } => {
                let lane = Lane::ALL[usize::from(lane) % Lane::ALL.len()];
                drop(link.receive(&frame(2, id.into(), lane.wire_name().as_bytes())));
            }
            Act::Credit { id, amount } => {
                drop(link.receive(&frame(8, id.into(), &amount.to_be_bytes())));
            }
            Act::Write { which, size } => {
                let id = pick(which);
                // A little more than there is room for, as an injected line may be.
                let size = usize::from(size).min(link.writable(id) + 50);
                let _ = link.write(id, &vec![b'x'; size]);
            }
            Act::Consume { which, size } => {
                let id = pick(which);
                let size = usize::from(size).min(link.front(id).len());
                link.consume(id, size);
            }
            Act::Finish(which) => link.finish(pick(which)),
            Act::Close(which) => link.close(pick(which)),
            Act::OpenOne => known.extend(link.open(Lane::Gpg)),
            Act::Keys { size, end } => {
                let _ = link.write(StreamId::KEYS, &vec![b'k'; usize::from(size)]);
                if end {
                    let _ = link.end_keys();
                    link.keys_done();
                }
            }
            Act::Transmit => {
                out.clear();
                link.transmit(&mut out);
                assert!(out.len() <= 2 << 20);
            }
        }
        while let Some(event) = link.poll_event() {
            if let Event::Opened { id, .. } = event {
                known.push(id);
            }
        }
        assert!(link.held() <= bound, "{} held", link.held());
        let sent = match version {
            Version::One => usize::MAX,
            Version::Two => LINK_WINDOW + (STREAMS + 1) * FLOOR,
        };
        assert!(link.in_flight() <= sent && (link.in_flight() <= known.len() * WINDOW));
    }
}

fn frame(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 5).expect("a short payload");
    let mut frame = length.to_be_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}
