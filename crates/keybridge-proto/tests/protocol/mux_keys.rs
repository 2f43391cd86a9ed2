//! Public keys over version 2: any size, with bounded memory at each end.

use crate::pair::{Pair, frame, pattern, read, transmitted};
use keybridge_proto::mux::{End, Event, HIGH_WATER, LinkError, StreamId, Version, WINDOW};

const KEYS: StreamId = StreamId::KEYS;

#[test]
fn three_mib_of_keys_arrive_with_bounded_memory() {
    let export = pattern(0, 3 * 1024 * 1024);
    let mut pair = Pair::new(Version::Two);
    let (mut rest, mut arrived, mut ended) = (&export[..], Vec::new(), false);
    while !ended {
        let room = pair.host.writable(KEYS).min(rest.len());
        let (now, later) = rest.split_at(room);
        rest = later;
        if !now.is_empty() {
            pair.host.write(KEYS, now).unwrap();
            if rest.is_empty() {
                pair.host.end_keys().unwrap();
            }
        }
        pair.step(10_000);
        assert!(pair.host.queued(KEYS) <= HIGH_WATER);
        assert!(pair.host.in_flight() <= WINDOW);
        assert!(pair.helper.held() <= WINDOW);
        ended = pair.helper_events.contains(&Event::KeysEnd);
        // A slow reader.
        let count = pair.helper.front(KEYS).len().min(9_000);
        arrived.extend_from_slice(&pair.helper.front(KEYS)[..count]);
        pair.helper.consume(KEYS, count);
    }
    arrived.extend(read(&mut pair.helper, KEYS));
    assert!(arrived == export);
    assert!(pair.helper.is_finished(KEYS));
    assert_eq!(pair.helper_events.iter().filter(|event| **event == Event::KeysEnd).count(), 1);
}

#[test]
fn a_series_ends_with_an_empty_frame_and_another_can_follow() {
    let mut pair = Pair::new(Version::Two);
    transmitted(&mut pair.host);
    for keys in [&b"first"[..], b"", b"third"] {
        pair.host.write(KEYS, keys).unwrap();
        pair.host.end_keys().unwrap();
        assert_eq!(pair.host.write(KEYS, b"x"), Err(LinkError::KeysEnded));
        assert_eq!(pair.host.end_keys(), Err(LinkError::KeysEnded));
        let data = if keys.is_empty() { vec![] } else { frame(4, 0, keys) };
        assert_eq!(transmitted(&mut pair.host), [data, frame(4, 0, b"")].concat());
    }
    let error = LinkError::NotAtThisEnd { call: "writing keys", end: End::Helper };
    assert_eq!(pair.helper.write(KEYS, b"x"), Err(error));
    assert_eq!(pair.helper.writable(KEYS), 0);
}

#[test]
fn keys_that_nobody_reads_do_not_delay_streams() {
    let mut pair = Pair::begun(Version::Two);
    let id = pair.open(1)[0];
    for _ in 0..5 {
        let room = pair.host.writable(KEYS);
        pair.host.write(KEYS, &pattern(0, room)).unwrap();
        pair.run();
    }
    assert_eq!((pair.host.writable(KEYS), pair.helper.held()), (0, WINDOW));
    pair.host.write(id, b"answer").unwrap();
    pair.run();
    assert_eq!(read(&mut pair.helper, id), b"answer");
}
