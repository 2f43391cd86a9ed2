//! Streams of version 2 between both ends: none waits for another, and each ends as it should.

use crate::pair::{Pair, config, frame, frames, held, pattern, read, transmitted};
use keybridge_proto::Lane;
use keybridge_proto::mux::{
    Config, End, Endpoint, Event, FLOOR, HIGH_WATER, LINK_WINDOW, LinkError, MAX_DATA, StreamId,
    Version, WINDOW,
};

/// Writes to a stream until it takes no more, moving bytes in between; returns how much it took.
fn fill(pair: &mut Pair, id: StreamId) -> usize {
    let mut written = 0;
    loop {
        let room = pair.helper.writable(id);
        if room == 0 {
            return written;
        }
        pair.helper.write(id, &pattern(written, room)).unwrap();
        written += room;
        pair.run();
    }
}

fn echo(pair: &mut Pair, id: StreamId) {
    pair.helper.write(id, b"question").unwrap();
    pair.run();
    assert_eq!(read(&mut pair.host, id), b"question");
    pair.host.write(id, b"answer").unwrap();
    pair.run();
    assert_eq!(read(&mut pair.helper, id), b"answer");
}

#[test]
fn a_stalled_stream_does_not_delay_another() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(2);
    assert_eq!(fill(&mut pair, ids[0]), WINDOW);
    pair.helper.write(ids[0], &[0; 1000]).unwrap();
    assert!(!pair.helper.wants_transmit(), "a stream without credit is not in the ring");
    for _ in 0..100 {
        echo(&mut pair, ids[1]);
    }
    assert_eq!(held(&pair.host, ids[0]), pattern(0, WINDOW));
    assert_eq!(pair.helper.queued(ids[0]), 1000);
}

#[test]
fn forty_stalled_streams_do_not_delay_another() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(41);
    let taken: Vec<usize> = ids[..40].iter().map(|id| fill(&mut pair, *id)).collect();
    assert_eq!(taken[..16], [WINDOW; 16]);
    assert_eq!(taken[16..], [FLOOR; 24]);
    assert_eq!(pair.host.held(), LINK_WINDOW + 24 * FLOOR);
    assert_eq!(pair.helper.writable(ids[40]), FLOOR);
    for _ in 0..100 {
        echo(&mut pair, ids[40]);
    }
    // The other direction has a window of its own.
    assert_eq!(pair.host.writable(ids[40]), HIGH_WATER);
}

#[test]
fn room_in_the_link_goes_to_all_that_wait_for_it() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(20);
    for id in &ids {
        fill(&mut pair, *id);
    }
    for id in &ids[16..] {
        pair.helper.write(*id, &pattern(FLOOR, 100)).unwrap();
    }
    pair.forget_events();
    assert!(!pair.helper.wants_transmit());
    // 16 KiB are over the link's window by the floors; a quarter of a window gives 48 KiB of room.
    let over = 4 * FLOOR;
    assert_eq!(pair.helper.in_flight(), LINK_WINDOW + over);
    pair.host.consume(ids[0], WINDOW / 4);
    pair.run();
    let writable: Vec<StreamId> = pair
        .helper_events
        .iter()
        .map(|event| match event {
            Event::Writable(id) => *id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(writable, [&ids[0..1], &ids[16..]].concat());
    assert_eq!(pair.helper.in_flight(), LINK_WINDOW + over - WINDOW / 4 + 4 * 100);
    for id in &ids[16..] {
        assert_eq!(held(&pair.host, *id), pattern(0, FLOOR + 100));
    }
}

#[test]
fn closing_a_stalled_stream_frees_the_link_too() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(17);
    for id in &ids {
        fill(&mut pair, *id);
    }
    pair.forget_events();
    pair.host.close(ids[3]);
    pair.run();
    let after = [Event::Writable(ids[16]), Event::Closed(ids[3])];
    assert_eq!(pair.helper_events, after);
    assert_eq!(pair.helper.in_flight(), LINK_WINDOW - WINDOW + FLOOR);
    assert_eq!(pair.host.held(), LINK_WINDOW - WINDOW + FLOOR);
}

#[test]
fn a_bulk_stream_delays_a_small_one_by_one_frame() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(2);
    pair.helper.write(ids[0], &pattern(0, 2 * MAX_DATA)).unwrap();
    pair.helper.write(ids[1], b"small").unwrap();
    let sent: Vec<_> = frames(&transmitted(&mut pair.helper))
        .into_iter()
        .map(|(kind, stream, payload)| (kind, stream, payload.len()))
        .collect();
    assert_eq!(sent, [(1, 1, MAX_DATA), (1, 2, 5), (1, 1, MAX_DATA)]);
}

#[test]
fn control_frames_go_before_bytes() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(1);
    // As much as is worth a frame of credit.
    pair.helper.write(ids[0], &[7; FLOOR / 2]).unwrap();
    pair.run();
    pair.host.write(ids[0], &[0; 10]).unwrap();
    assert_eq!(read(&mut pair.host, ids[0]), [7; FLOOR / 2]);
    pair.host.ping(0x0102_0304_0506_0708);
    let sent = [
        frame(10, 0, &[1, 2, 3, 4, 5, 6, 7, 8]),
        frame(8, 1, &[0, 0, 8, 0]),
        frame(1, 1, &[0; 10]),
    ];
    assert_eq!(transmitted(&mut pair.host), sent.concat());
}

#[test]
fn eof_one_way_leaves_the_other_open() {
    let mut pair = Pair::begun(Version::Two);
    let id = pair.open(1)[0];
    pair.helper.write(id, b"last words").unwrap();
    pair.helper.finish(id);
    pair.helper.finish(id);
    let error = LinkError::WriteAfterFinish { id };
    assert_eq!(pair.helper.write(id, b"more"), Err(error));
    pair.run();
    assert_eq!(pair.host_events, [Event::Readable(id), Event::Finished(id)]);
    assert!(!pair.host.is_finished(id));
    assert_eq!(read(&mut pair.host, id), b"last words");
    assert!(pair.host.is_finished(id));
    for part in [&b"one"[..], b"two"] {
        pair.host.write(id, part).unwrap();
        pair.run();
        assert_eq!(read(&mut pair.helper, id), part);
    }
    pair.host.finish(id);
    pair.run();
    assert!(pair.helper.is_finished(id));
    // Both are at their end, and the stream lives until it is closed.
    pair.forget_events();
    pair.helper.close(id);
    pair.run();
    assert_eq!(pair.host_events, [Event::Closed(id)]);
    assert_eq!(pair.helper_events, []);
    assert_eq!((pair.host.in_flight(), pair.helper.in_flight()), (0, 0));
}

#[test]
fn an_end_waits_for_credit_like_the_bytes_before_it() {
    let mut pair = Pair::begun(Version::Two);
    let id = pair.open(1)[0];
    let full = fill(&mut pair, id);
    pair.helper.write(id, b"over").unwrap();
    pair.helper.finish(id);
    pair.forget_events();
    pair.run();
    assert_eq!(pair.host_events, []);
    assert_eq!(read(&mut pair.host, id), pattern(0, full));
    pair.run();
    assert_eq!(read(&mut pair.host, id), b"over");
    assert!(pair.host.is_finished(id));
}

#[test]
fn frames_in_flight_after_close_are_harmless() {
    for host_closes in [true, false] {
        let mut pair = Pair::begun(Version::Two);
        let ids = pair.open(2);
        pair.helper.write(ids[0], &pattern(0, 5000)).unwrap();
        pair.host.write(ids[0], &pattern(0, 7000)).unwrap();
        pair.run();
        // Bytes, credit and an end are on both wires when one side closes.
        read(&mut pair.host, ids[0]);
        pair.helper.consume(ids[0], 6999);
        pair.helper.consume(ids[0], 1);
        pair.helper.write(ids[0], &pattern(0, 300)).unwrap();
        pair.host.write(ids[0], &pattern(0, 400)).unwrap();
        pair.helper.finish(ids[0]);
        pair.host.finish(ids[0]);
        pair.helper.transmit(&mut pair.to_host);
        pair.host.transmit(&mut pair.to_helper);
        let half = pair.to_host.len() / 2;
        pair.host.receive(&pair.to_host[..half]).unwrap();
        pair.to_host.drain(..half);
        if host_closes {
            pair.host.close(ids[0]);
        } else {
            pair.helper.close(ids[0]);
        }
        pair.forget_events();
        pair.run();
        let told = if host_closes { &pair.helper_events } else { &pair.host_events };
        assert_eq!(told.iter().filter(|event| **event == Event::Closed(ids[0])).count(), 1);
        assert_eq!((pair.host.held(), pair.helper.held()), (0, 0));
        assert_eq!((pair.host.in_flight(), pair.helper.in_flight()), (0, 0));
        // Nothing was lost of the other streams' credit.
        assert_eq!(fill(&mut pair, ids[1]), WINDOW);
        echo_back(&mut pair, ids[1]);
    }
}

fn echo_back(pair: &mut Pair, id: StreamId) {
    assert_eq!(read(&mut pair.host, id).len(), WINDOW);
    pair.run();
    assert_eq!(pair.helper.in_flight(), 0);
    echo(pair, id);
}

#[test]
fn both_sides_closing_at_once_is_harmless() {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(2);
    pair.helper.close(ids[0]);
    pair.host.close(ids[0]);
    pair.run();
    assert_eq!((&pair.host_events[..], &pair.helper_events[..]), (&[][..], &[][..]));
    pair.helper.write(ids[0], b"too late").unwrap();
    assert_eq!(pair.helper.writable(ids[0]), 0);
    assert_eq!(pair.helper.front(ids[0]), b"");
    assert!(!pair.helper.is_finished(ids[0]));
    echo(&mut pair, ids[1]);
}

#[test]
fn a_stream_that_was_closed_before_its_open_was_sent_keeps_its_number() {
    let mut pair = Pair::begun(Version::Two);
    let first = pair.helper.open(Lane::Gpg).unwrap();
    pair.helper.write(first, b"never sent").unwrap();
    pair.helper.close(first);
    let second = pair.helper.open(Lane::Ssh).unwrap();
    let mut sent = Vec::new();
    pair.helper.transmit(&mut sent);
    let expected = [frame(2, 1, b"gpg-agent"), frame(3, 1, b""), frame(2, 2, b"ssh-agent")];
    assert_eq!(sent, expected.concat());
    assert_eq!((first.get(), second.get()), (1, 2));
}

#[test]
fn a_helper_opens_no_more_than_it_may() {
    let mut few = config(End::Helper, Version::Two);
    few.max_streams = 2;
    let mut pair = Pair::with(config(End::Host, Version::Two), few);
    let ids = pair.open(2);
    let error = LinkError::TooManyStreams { limit: 2 };
    assert_eq!(pair.helper.open(Lane::Gpg), Err(error.clone()));
    pair.helper.close(ids[0]);
    assert_eq!(pair.helper.open(Lane::Gpg), Err(error), "its CLOSE isn't sent");
    pair.run();
    assert_eq!(pair.helper.open(Lane::Gpg).map(StreamId::get), Ok(3));
    let error = LinkError::NotAtThisEnd { call: "open", end: End::Host };
    assert_eq!(pair.host.open(Lane::Gpg), Err(error));
}

#[test]
fn a_writer_that_was_told_0_is_told_when_there_is_room() {
    let mut pair = Pair::begun(Version::Two);
    let id = pair.open(1)[0];
    let mut written = 0;
    for turn in 0..4 {
        assert_eq!(pair.helper.writable(id), HIGH_WATER, "turn {turn}");
        pair.helper.write(id, &pattern(written, HIGH_WATER)).unwrap();
        written += HIGH_WATER;
        assert_eq!(pair.helper.writable(id), 0);
        pair.forget_events();
        pair.run();
        let told: &[Event] = if turn < 3 { &[Event::Writable(id)] } else { &[] };
        assert_eq!(pair.helper_events, told, "turn {turn}");
    }
    assert_eq!(pair.helper.in_flight(), WINDOW);
    pair.host.consume(id, WINDOW / 4);
    pair.run();
    assert_eq!(pair.helper_events, [Event::Writable(id)]);
    assert_eq!(pair.helper.writable(id), WINDOW / 4);
}

#[test]
fn a_steady_transfer_allocates_nothing() {
    let mut host = Endpoint::new(config(End::Host, Version::Two)).unwrap();
    let mut helper = Endpoint::new(config(End::Helper, Version::Two)).unwrap();
    let id = helper.open(Lane::Gpg).unwrap();
    let bytes = pattern(0, 40_000);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut turn = || {
        helper.write(id, &bytes).unwrap();
        while helper.wants_transmit() || host.wants_transmit() {
            up.clear();
            down.clear();
            helper.transmit(&mut up);
            host.receive(&up).unwrap();
            while !host.front(id).is_empty() {
                let count = host.front(id).len();
                host.consume(id, count);
            }
            host.transmit(&mut down);
            helper.receive(&down).unwrap();
            while host.poll_event().is_some() || helper.poll_event().is_some() {}
        }
    };
    (0..10).for_each(|_| turn());
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| turn()));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn stop_reaches_the_helper_and_only_the_host_may_send_it() {
    let mut host = Endpoint::new(Config::new(End::Host, Version::Two, &Lane::ALL)).unwrap();
    let mut helper = Endpoint::new(Config::new(End::Helper, Version::Two, &Lane::ALL)).unwrap();
    host.stop().unwrap();
    let mut wire = Vec::new();
    host.transmit(&mut wire);
    assert!(wire.ends_with(&[0, 0, 0, 5, 12, 0, 0, 0, 0]), "{wire:?}");
    helper.receive(&wire).unwrap();
    assert!(matches!(helper.poll_event(), Some(Event::Hello(_))));
    assert_eq!(helper.poll_event(), Some(Event::Stop));
    assert!(helper.stop().is_err());
    assert!(!host.wants_transmit());
    host.receive(&wire).unwrap_err();
}

#[test]
fn a_stream_that_was_opened_and_closed_at_once_can_be_told_from_one_that_lives() {
    let mut pair = Pair::begun(Version::Two);
    let wire = [frame(2, 1, b"gpg-agent"), frame(3, 1, b""), frame(2, 2, b"gpg-agent")].concat();
    pair.host.receive(&wire).unwrap();
    let mut opened = Vec::new();
    while let Some(event) = pair.host.poll_event() {
        if let Event::Opened { id, .. } = event {
            opened.push((id.get(), pair.host.is_open(id)));
        }
    }
    assert_eq!(opened, [(1, false), (2, true)]);
}

#[test]
fn the_debug_form_of_a_link_shows_no_bytes() {
    let mut pair = Pair::begun(Version::Two);
    let id = pair.open(1)[0];
    pair.helper.write(id, &[0xab; 8]).unwrap();
    pair.run();
    for link in [&pair.host, &pair.helper] {
        assert!(!format!("{link:?}").contains("171, 171"));
    }
}
