//! What holds for a link whatever its owners and its wires do.

use crate::pair::{Pair, pattern};
use keybridge_proto::mux::{
    Cookie, DEFAULT_MAX_STREAMS, Endpoint, Event, FLOOR, HIGH_WATER, LINK_WINDOW, StartScanner,
    StreamId, Version, WINDOW,
};
use proptest::prelude::*;

/// One direction of one stream as its owners see it.
#[derive(Clone, Copy, Default)]
struct Direction {
    written: usize,
    read: usize,
}

impl Direction {
    fn write(&mut self, link: &mut Endpoint, id: StreamId, count: usize) {
        link.write(id, &pattern(self.written, count)).unwrap();
        self.written += count;
    }

    fn read(&mut self, link: &mut Endpoint, id: StreamId, mut count: usize) {
        while count > 0 && !link.front(id).is_empty() {
            let now = link.front(id).len().min(count);
            assert!(link.front(id)[..now] == pattern(self.read, now));
            link.consume(id, now);
            self.read += now;
            count -= now;
        }
    }
}

#[derive(Debug, Clone)]
enum Action {
    Write { helper: bool, stream: usize, count: usize },
    Flood { helper: bool },
    Read { helper: bool, stream: usize, count: usize },
    Close { helper: bool, stream: usize },
    Step(usize),
}

const STREAMS: usize = 24;

fn action() -> impl Strategy<Value = Action> {
    let stream = 0..STREAMS;
    prop_oneof![
        4 => (any::<bool>(), stream.clone(), 0..HIGH_WATER)
            .prop_map(|(helper, stream, count)| Action::Write { helper, stream, count }),
        3 => any::<bool>().prop_map(|helper| Action::Flood { helper }),
        4 => (any::<bool>(), stream.clone(), 0..2 * WINDOW)
            .prop_map(|(helper, stream, count)| Action::Read { helper, stream, count }),
        1 => (any::<bool>(), stream).prop_map(|(helper, stream)| Action::Close { helper, stream }),
        6 => prop_oneof![1usize..100, 1usize..1_000_000].prop_map(Action::Step),
    ]
}

fn check_bounds(pair: &Pair, ids: &[StreamId]) {
    let bound = LINK_WINDOW + DEFAULT_MAX_STREAMS * FLOOR;
    for (receiver, sender) in [(&pair.host, &pair.helper), (&pair.helper, &pair.host)] {
        assert!(sender.in_flight() <= bound);
        let each = ids.iter().map(|id| receiver.received(*id).map(<[u8]>::len).sum::<usize>());
        let each: Vec<usize> = each.collect();
        assert!(each.iter().all(|held| *held <= WINDOW));
        assert_eq!(each.iter().sum::<usize>(), receiver.held());
        assert!(receiver.held() <= bound);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn windows_are_kept_and_nothing_is_lost(actions in proptest::collection::vec(action(), 1..120)) {
        let mut pair = Pair::begun(Version::Two);
        let ids = pair.open(STREAMS);
        let mut up = [Direction::default(); STREAMS];
        let mut down = [Direction::default(); STREAMS];
        let mut closed = [false; STREAMS];
        for action in actions {
            match action {
                Action::Write { helper, stream, count } if !closed[stream] => {
                    // More than there is room for, by a little.
                    let id = ids[stream];
                    if helper {
                        let count = count.min(pair.helper.writable(id) + 10);
                        up[stream].write(&mut pair.helper, id, count);
                    } else {
                        let count = count.min(pair.host.writable(id) + 10);
                        down[stream].write(&mut pair.host, id, count);
                    }
                }
                Action::Write { .. } => {}
                Action::Flood { helper } => for stream in (0..STREAMS).filter(|n| !closed[*n]) {
                    let id = ids[stream];
                    if helper {
                        let count = pair.helper.writable(id);
                        up[stream].write(&mut pair.helper, id, count);
                    } else {
                        let count = pair.host.writable(id);
                        down[stream].write(&mut pair.host, id, count);
                    }
                },
                Action::Read { helper: true, stream, count } => {
                    down[stream].read(&mut pair.helper, ids[stream], count);
                }
                Action::Read { helper: false, stream, count } => {
                    up[stream].read(&mut pair.host, ids[stream], count);
                }
                Action::Close { helper, stream } => {
                    closed[stream] = true;
                    if helper {
                        pair.helper.close(ids[stream]);
                    } else {
                        pair.host.close(ids[stream]);
                    }
                }
                Action::Step(bytes) => {
                    pair.step(bytes);
                }
            }
            check_bounds(&pair, &ids);
        }
        // Whatever is left arrives as soon as it is read.
        loop {
            let moved = pair.step(usize::MAX);
            check_bounds(&pair, &ids);
            let before = (pair.host.held(), pair.helper.held());
            for stream in 0..STREAMS {
                up[stream].read(&mut pair.host, ids[stream], usize::MAX);
                down[stream].read(&mut pair.helper, ids[stream], usize::MAX);
            }
            if !moved && before == (0, 0) {
                break;
            }
        }
        for stream in (0..STREAMS).filter(|stream| !closed[*stream]) {
            prop_assert_eq!(up[stream].read, up[stream].written);
            prop_assert_eq!(down[stream].read, down[stream].written);
        }
        // Less than half a floor may be owed on each stream that goes on.
        let owed = STREAMS * FLOOR / 2;
        prop_assert!(pair.host.in_flight() < owed && pair.helper.in_flight() < owed);
    }

    #[test]
    fn the_start_line_is_found_after_any_banner(
        cookie in any::<[u8; 16]>(),
        banner in "[\nKEYBRIDG 2ab]{0,200}",
        cut in 0usize..48,
        rest in proptest::collection::vec(any::<u8>(), 0..50),
        sizes in proptest::collection::vec(1usize..30, 1..30),
    ) {
        let cookie = Cookie::new(cookie);
        let line = cookie.start_line();
        // The worst banner ends like the line begins.
        let before = [banner.as_bytes(), &line[..cut.min(line.len() - 1)]].concat();
        let input = [&before[..], &line, &rest].concat();
        let mut scanner = StartScanner::new(&cookie);
        let (mut at, mut found) = (0, None);
        for size in sizes.iter().cycle() {
            let piece = &input[at..input.len().min(at + size)];
            if let Some(end) = scanner.feed(piece).unwrap() {
                found = Some(at + end);
                break;
            }
            at += piece.len();
            prop_assert!(at < input.len());
        }
        let first = input.windows(line.len()).position(|window| window == line);
        prop_assert_eq!(found, first.map(|start| start + line.len()));
        prop_assert_eq!(scanner.feed(b"later"), Ok(Some(0)));
    }
}

/// Both ends write all they can, as an owner does that goes by events alone, until all has arrived.
fn both_ways(streams: usize, total: usize, mut wire: impl FnMut() -> usize, reader: usize) {
    let mut pair = Pair::begun(Version::Two);
    let ids = pair.open(streams);
    let mut up = vec![Direction::default(); streams];
    let mut down = up.clone();
    for id in &ids {
        pair.helper_events.push(Event::Writable(*id));
        pair.host_events.push(Event::Writable(*id));
    }
    let place = |id: &StreamId| usize::try_from(id.get()).unwrap() - 1;
    loop {
        for event in std::mem::take(&mut pair.helper_events) {
            if let Event::Writable(id) = event {
                write_all(&mut pair.helper, id, &mut up[place(&id)], total);
            }
        }
        for event in std::mem::take(&mut pair.host_events) {
            if let Event::Writable(id) = event {
                write_all(&mut pair.host, id, &mut down[place(&id)], total);
            }
        }
        let mut read = false;
        for (stream, id) in ids.iter().enumerate() {
            let before = up[stream].read + down[stream].read;
            up[stream].read(&mut pair.host, *id, reader);
            down[stream].read(&mut pair.helper, *id, reader);
            read |= up[stream].read + down[stream].read > before;
        }
        let moved = pair.step(wire());
        if up.iter().chain(&down).all(|direction| direction.read == total) {
            return;
        }
        let told = !pair.host_events.is_empty() || !pair.helper_events.is_empty();
        assert!(moved || read || told, "a deadlock");
    }
}

fn write_all(link: &mut Endpoint, id: StreamId, direction: &mut Direction, total: usize) {
    loop {
        let room = link.writable(id).min(total - direction.written);
        if room == 0 {
            return;
        }
        direction.write(link, id, room);
    }
}

#[test]
fn both_ends_at_full_speed_never_deadlock() {
    both_ways(3, 2_000_000, || 100_000, usize::MAX);
}

#[test]
fn both_ends_with_slow_readers_and_a_used_up_link_never_deadlock() {
    both_ways(40, 300_000, || 1_000_000, 5_000);
}

#[test]
fn both_ends_on_a_wire_of_a_few_bytes_never_deadlock() {
    let mut turn = 0;
    let few = move || {
        turn = turn % 7 + 1;
        turn
    };
    both_ways(2, WINDOW + 50_000, few, usize::MAX);
}
