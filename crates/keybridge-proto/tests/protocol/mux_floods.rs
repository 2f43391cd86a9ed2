//! Frames that cost their sender almost nothing: a flood of them ends the link, and a helper that works never
//! sends so many.

use std::time::{Duration, Instant};

use crate::pair::{Pair, frame, read, transmitted};
use keybridge_proto::Lane;
use keybridge_proto::mux::{
    DEFAULT_MAX_STREAMS, Event, LinkError, OPEN_BURST, OPEN_INTERVAL, OpenPace, SILENCE_LIMIT,
    Version,
};

/// Makes the frames with a number.
type Flood<'a> = &'a dyn Fn(u32) -> Vec<u8>;

/// Whether a host goes on with a helper that sends so many of these frames in every millisecond.
fn taken(version: Version, frames: Flood<'_>, in_a_millisecond: u32) -> Result<(), LinkError> {
    let mut pair = Pair::begun(version);
    let start = Instant::now();
    // Long enough to have used up any burst.
    for millisecond in 0..12_000 {
        pair.host.pass_time(start + Duration::from_millis(millisecond.into()));
        for number in 0..in_a_millisecond {
            pair.host.receive(&frames(millisecond * in_a_millisecond + number + 1))?;
        }
        while let Some(event) = pair.host.poll_event() {
            if let Event::Readable(id) = event {
                read(&mut pair.host, id);
            }
        }
        pair.host.transmit(&mut Vec::new());
    }
    Ok(())
}

#[test]
fn a_flood_of_small_frames_never_keeps_the_host_busy() {
    let eight = 7_u64.to_be_bytes();
    let first = |number, frames: &[Vec<u8>]| if number == 1 { frames.concat() } else { Vec::new() };
    let open = || frame(2, 1, b"gpg-agent");
    let floods: [(&str, Flood<'_>); 11] = [
        ("PONG", &|_| frame(11, 0, &eight)),
        ("PING", &|_| frame(10, 0, &eight)),
        ("READY", &|_| frame(5, 0, b"")),
        ("ERROR", &|_| frame(6, 0, b"x")),
        ("unknown", &|_| frame(99, 0, b"")),
        ("OPEN and CLOSE", &|id| [frame(2, id, b"gpg-agent"), frame(3, id, b"")].concat()),
        ("DATA without bytes, and late WINDOW", &|id| {
            let open = frame(2, id, b"gpg-agent");
            [open, frame(1, id, b""), frame(3, id, b""), frame(8, id, &[0, 0, 255, 0])].concat()
        }),
        ("DATA to a closed stream", &|number| {
            [first(number, &[open(), frame(3, 1, b"")]), frame(1, 1, b"x")].concat()
        }),
        ("DATA to a refused lane", &|number| {
            [first(number, &[frame(2, 1, b"no-lane")]), frame(1, 1, &[b'x'; 300])].concat()
        }),
        ("small DATA that a client's session reads", &|number| {
            [first(number, &[open()]), frame(1, 1, b"\n")].concat()
        }),
        ("small DATA between large ones", &|number| {
            [first(number, &[open()]), frame(1, 1, b"\n").repeat(3), frame(1, 1, &[b'\n'; 256])]
                .concat()
        }),
    ];
    for (what, frames) in floods {
        for version in [Version::One, Version::Two] {
            let flooded = Err(LinkError::TooManyFrames);
            assert_eq!(taken(version, frames, 6), flooded, "{what} in {version:?}");
            assert_eq!(taken(version, frames, 1), Ok(()), "{what} in {version:?}");
        }
    }
    let mut pair = Pair::begun(Version::Two);
    pair.open(1);
    let flood = frame(8, 1, &[0; 4]).repeat(100_000);
    assert_eq!(pair.host.receive(&flood).map(drop), Err(LinkError::TooManyFrames));
}

#[test]
fn a_helper_that_opens_streams_as_fast_as_it_may_never_ends_its_link() {
    let mut pair = Pair::begun(Version::Two);
    let start = Instant::now();
    let pace = OpenPace::new(start);
    let (mut now, mut opened) = (start, 0);
    let mut stalled_at = start + Duration::from_secs(3);
    while opened < 20_000 {
        let id = pair.helper.open(Lane::Gpg).unwrap();
        opened += 1;
        pair.helper.ping(1);
        pair.to_host.extend(transmitted(&mut pair.helper));
        pair.helper.finish(id);
        pair.to_host.extend(transmitted(&mut pair.helper));
        pair.helper.close(id);
        pair.to_host.extend(transmitted(&mut pair.helper));
        // The link carries nothing for as long as a link may, and then everything at once.
        if now < stalled_at || now > stalled_at + SILENCE_LIMIT {
            pair.host.pass_time(now);
            pair.run();
        }
        if now > stalled_at + SILENCE_LIMIT * 2 {
            stalled_at = now;
        }
        now = pace.slot(now).unwrap_or(now);
    }
    let at_that_pace = OPEN_INTERVAL * (20_000 - OPEN_BURST);
    assert!(now - start >= at_that_pace.saturating_sub(OPEN_INTERVAL), "{:?}", now - start);
}

#[test]
fn credit_for_bulk_never_counts_as_a_flood() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(DEFAULT_MAX_STREAMS);
    // No time passes at all. Small answers are given credit for as soon as that is worth a frame.
    for size in [100, 2048, 4096, 32 * 1024] {
        for _ in 0..500 {
            for &id in ids.iter().take(8) {
                pair.host.write(id, &vec![7; size]).unwrap();
            }
            pair.run();
            for &id in ids.iter().take(8) {
                assert_eq!(read(&mut pair.helper, id).len(), size);
            }
            pair.run();
        }
    }
}

#[test]
fn clients_that_wait_for_answers_never_count_as_a_flood() {
    for version in [Version::One, Version::Two] {
        let mut pair = Pair::begun(version);
        let ids = pair.open(200);
        // A rebase of many commits, thirteen round trips each. No time passes at all.
        for _ in 0..13 * 20 {
            // As libassuan writes a line, in two pieces, and at the end of an inquiry in four.
            for piece in [&b"D (7:enc-val"[..], b"\n", b"END", b"\n"] {
                for &id in &ids {
                    pair.helper.write(id, piece).unwrap();
                }
                pair.to_host.extend(transmitted(&mut pair.helper));
            }
            pair.run();
            for &id in &ids {
                assert_eq!(read(&mut pair.host, id), b"D (7:enc-val\nEND\n");
                pair.host.write(id, b"OK\n").unwrap();
            }
            pair.run();
            for &id in &ids {
                assert_eq!(read(&mut pair.helper, id), b"OK\n");
            }
        }
    }
}

#[test]
fn bulk_from_clients_never_counts_as_a_flood() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(DEFAULT_MAX_STREAMS);
    // More than the link may carry at once, in sizes that leave a small rest.
    let mut left = vec![1_000_003; ids.len()];
    let (mut sent, mut came) = (0, 0);
    while came < 1_000_003 * ids.len() {
        for (id, left) in ids.iter().zip(&mut left) {
            let count = pair.helper.writable(*id).min(1003).min(*left);
            pair.helper.write(*id, &vec![7; count]).unwrap();
            *left -= count;
            sent += count;
        }
        pair.run();
        // Every client's session reads as little as a line.
        for &id in &ids {
            let count = pair.host.front(id).len().min(1003);
            pair.host.consume(id, count);
            came += count;
        }
    }
    assert_eq!(came, sent);
}
