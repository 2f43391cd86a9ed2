//! What a link does with a peer that breaks the rules: the exact error, however the input is split.

use crate::pair::{self, config, frame, outcome, read, transmitted};
use keybridge_proto::Lane;
use keybridge_proto::mux::{
    Config, Cookie, End, Endpoint, Event, FLOOR, FrameType, Hello, LINK_WINDOW, LinkError,
    START_LINE_LIMIT, StartScanner, StreamId, Version, WINDOW,
};

const DATA: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const PUBKEY: u8 = 4;
const READY: u8 = 5;
const ERROR: u8 = 6;
const HELLO: u8 = 7;
const WINDOW_FRAME: u8 = 8;
const EOF: u8 = 9;
const PING: u8 = 10;
const PONG: u8 = 11;

fn host() -> Config {
    config(End::Host, Version::Two)
}

fn helper() -> Config {
    config(End::Helper, Version::Two)
}

fn nothing(_: &mut Endpoint) {}

fn open_one(link: &mut Endpoint) {
    link.open(Lane::Ssh).unwrap();
}

fn open_and_write(link: &mut Endpoint) {
    let id = link.open(Lane::Ssh).unwrap();
    link.write(id, b"12345").unwrap();
}

fn hello() -> Vec<u8> {
    frame(HELLO, 0, b"2 test")
}

fn after_hello(frames: &[Vec<u8>]) -> Vec<u8> {
    [hello(), frames.concat()].concat()
}

fn open(id: u32) -> Vec<u8> {
    frame(OPEN, id, b"gpg-agent")
}

#[track_caller]
fn fails(config: &Config, prepare: fn(&mut Endpoint), input: &[u8], error: LinkError) {
    assert_eq!(outcome(config, prepare, input).result, Err(error));
}

#[test]
fn a_frame_has_a_length_within_its_bounds() {
    let short = LinkError::FrameTooShort { length: 4 };
    fails(&host(), nothing, &after_hello(&[vec![0, 0, 0, 4]]), short);
    let long = LinkError::FrameTooLong { length: 0x10_0001 };
    fails(&host(), nothing, &after_hello(&[vec![0, 0x10, 0, 1]]), long);
}

#[test]
fn hello_is_first_and_once() {
    let early = LinkError::ExpectedHello { came: DATA };
    fails(&host(), nothing, &frame(DATA, 1, b"x"), early);
    fails(&host(), nothing, &frame(99, 0, b""), LinkError::ExpectedHello { came: 99 });
    fails(&helper(), nothing, &after_hello(&[hello()]), LinkError::HelloTwice);
    let other = LinkError::VersionMismatch { ours: 2, theirs: 3 };
    fails(&host(), nothing, &frame(HELLO, 0, b"3 test"), other);
    fails(&host(), nothing, &frame(HELLO, 0, b"2  test"), LinkError::HelloMalformed);
    let long = LinkError::PayloadTooLong { frame: FrameType::Hello, limit: 1024, came: 1025 };
    fails(&host(), nothing, &frame(HELLO, 0, &[b'2'; 1025])[..9], long);
}

#[test]
fn hello_is_told() {
    let told = outcome(&host(), nothing, &frame(HELLO, 0, b"2 0.9 ping keys"));
    let hello = Hello { program: "0.9".to_owned() };
    assert_eq!((told.result, told.events), (Ok(()), vec![Event::Hello(hello)]));
}

#[test]
fn unknown_types_are_passed_over_after_hello() {
    let input = after_hello(&[frame(15, 7, &[1; 100]), frame(255, 0, b""), open(1)]);
    let outcome = outcome(&host(), nothing, &input);
    assert_eq!(outcome.result, Ok(()));
    assert!(matches!(outcome.events[..], [Event::Hello(_), Event::Opened { lane: Lane::Gpg, .. }]));
    assert_eq!((outcome.held, outcome.answer), (0, vec![]));
}

#[test]
fn an_id_that_was_never_opened_ends_the_link() {
    for (kind, name, payload) in [
        (DATA, FrameType::Data, &b"x"[..]),
        (CLOSE, FrameType::Close, b""),
        (EOF, FrameType::Eof, b""),
        (WINDOW_FRAME, FrameType::Window, &[0, 0, 0, 1]),
    ] {
        let input = after_hello(&[open(1), frame(kind, 2, payload)]);
        let error = LinkError::NeverOpened { frame: name, id: 2, highest: 1 };
        fails(&host(), nothing, &input, error);
    }
}

#[test]
fn a_frame_for_a_closed_stream_is_dropped() {
    let late = [
        frame(DATA, 1, &[7; 300]),
        frame(WINDOW_FRAME, 1, &[0, 0, 0, 9]),
        frame(EOF, 1, b""),
        frame(CLOSE, 1, b""),
    ];
    let input =
        after_hello(&[open(1), frame(DATA, 1, b"held"), frame(CLOSE, 1, b""), late.concat()]);
    let outcome = outcome(&host(), nothing, &input);
    assert_eq!((outcome.result, outcome.held, outcome.answer), (Ok(()), 0, vec![]));
    assert_eq!(outcome.events.len(), 4, "{:?}", outcome.events);
    assert!(matches!(outcome.events[3], Event::Closed(_)));
}

#[test]
fn a_closed_stream_counts_no_more() {
    let mut link = Endpoint::new(host()).unwrap();
    link.receive(&hello()).unwrap();
    transmitted(&mut link);
    // 40 windows, which is far more than the link's; half are closed by each side.
    for id in 1..=40 {
        link.receive(&[open(id), frame(DATA, id, &vec![0; WINDOW])].concat()).unwrap();
        let opened = pair::events(&mut link).into_iter().find_map(|event| match event {
            Event::Opened { id, .. } => Some(id),
            _ => None,
        });
        if id % 2 == 0 {
            link.close(opened.unwrap());
            assert_eq!(transmitted(&mut link), frame(CLOSE, id, b""));
        } else {
            // Credit that was on its way has no one to go to.
            link.consume(opened.unwrap(), WINDOW / 2);
            assert!(link.wants_transmit());
            link.receive(&frame(CLOSE, id, b"")).unwrap();
            assert!(!link.wants_transmit());
        }
        assert_eq!(link.held(), 0);
    }
}

#[test]
fn a_stream_has_no_more_than_its_window() {
    let full = [open(1), frame(DATA, 1, &vec![0; WINDOW])];
    assert_eq!(outcome(&host(), nothing, &after_hello(&full)).held, WINDOW);
    let input = after_hello(&[full.concat(), frame(DATA, 1, b"x")[..9].to_vec()]);
    fails(&host(), nothing, &input, LinkError::StreamCreditExceeded { id: 1, room: 0, came: 1 });
    let input = after_hello(&[open(1), frame(DATA, 1, &vec![0; WINDOW + 1])[..9].to_vec()]);
    let error = LinkError::StreamCreditExceeded { id: 1, room: WINDOW, came: WINDOW + 1 };
    fails(&host(), nothing, &input, error);
}

#[test]
fn consumed_bytes_count_until_credit_for_them_is_sent() {
    let mut link = Endpoint::new(host()).unwrap();
    let full = after_hello(&[open(1), frame(DATA, 1, &vec![0; WINDOW])]);
    link.receive(&full).unwrap();
    transmitted(&mut link);
    let id = pair::events(&mut link)
        .into_iter()
        .find_map(|event| match event {
            Event::Opened { id, .. } => Some(id),
            _ => None,
        })
        .unwrap();
    link.consume(id, WINDOW / 4 - 1);
    assert_eq!(transmitted(&mut link), b"");
    link.consume(id, 1);
    assert_eq!(transmitted(&mut link), frame(WINDOW_FRAME, 1, &[0, 1, 0, 0]));
    link.receive(&frame(DATA, 1, &vec![0; WINDOW / 4])).unwrap();
    assert_eq!(read(&mut link, id).len(), WINDOW);
    let error = LinkError::StreamCreditExceeded { id: 1, room: 0, came: 1 };
    assert_eq!(link.receive(&frame(DATA, 1, b"x")), Err(error));
}

#[test]
fn all_streams_have_no_more_than_the_links_bound() {
    let few = Config { max_streams: 20, ..host() };
    let mut input = hello();
    (1..=18).for_each(|id| input.extend(open(id)));
    (1..=16).for_each(|id| input.extend(frame(DATA, id, &vec![0; WINDOW])));
    input.extend(frame(DATA, 17, &vec![0; 20 * FLOOR]));
    assert_eq!(outcome(&few, nothing, &input).held, LINK_WINDOW + 20 * FLOOR);
    input.extend(&frame(DATA, 18, b"x")[..9]);
    fails(&few, nothing, &input, LinkError::LinkCreditExceeded { id: 18, room: 0, came: 1 });
}

#[test]
fn credit_is_for_what_is_in_flight() {
    let input = after_hello(&[frame(WINDOW_FRAME, 1, &[0, 0, 0, 5])]);
    assert_eq!(outcome(&helper(), open_and_write, &input).result, Ok(()));
    let input = after_hello(&[frame(WINDOW_FRAME, 1, &[0, 0, 0, 6])]);
    let error = LinkError::CreditOverflow { id: 1, in_flight: 5, came: 6 };
    fails(&helper(), open_and_write, &input, error);
    let input = after_hello(&[frame(WINDOW_FRAME, 1, &[255; 4])]);
    let error = LinkError::CreditOverflow { id: 1, in_flight: 5, came: 0xffff_ffff };
    fails(&helper(), open_and_write, &input, error);
    let input = after_hello(&[frame(WINDOW_FRAME, 0, &[0, 0, 0, 1])]);
    fails(&host(), nothing, &input, LinkError::CreditOverflow { id: 0, in_flight: 0, came: 1 });
}

#[test]
fn streams_are_opened_in_order() {
    for came in [0, 1, 3, u32::MAX] {
        let input = after_hello(&[open(1), open(came)]);
        fails(&host(), nothing, &input, LinkError::OpenOutOfOrder { expected: 2, came });
    }
}

#[test]
fn a_lane_that_is_not_served_is_refused_and_the_link_goes_on() {
    let ssh_only = Config { lanes: vec![Lane::Ssh], ..host() };
    let refused = after_hello(&[open(1), frame(OPEN, 2, b"/etc/passwd"), frame(DATA, 1, b"lost")]);
    let input = [refused, frame(OPEN, 3, b"ssh-agent")].concat();
    let outcome = outcome(&ssh_only, nothing, &input);
    assert_eq!((outcome.result, outcome.held), (Ok(()), 0));
    assert_eq!(outcome.answer, [frame(CLOSE, 1, b""), frame(CLOSE, 2, b"")].concat());
    assert!(matches!(outcome.events[..], [Event::Hello(_), Event::Opened { lane: Lane::Ssh, .. }]));
}

#[test]
fn too_many_streams_are_refused_and_too_many_refusals_end_the_link() {
    let two = Config { max_streams: 2, ..host() };
    let input = after_hello(&[open(1), open(2), open(3), open(4)]);
    let refused = outcome(&two, nothing, &input);
    assert_eq!(refused.answer, [frame(CLOSE, 3, b""), frame(CLOSE, 4, b"")].concat());
    assert_eq!((refused.result, refused.events.len()), (Ok(()), 3));
    fails(&two, nothing, &[input, open(5)].concat(), LinkError::TooManyRefusals { limit: 2 });
    // A place is free again as soon as the helper closes a stream.
    let input = after_hello(&[open(1), open(2), frame(CLOSE, 1, b""), open(3)]);
    assert_eq!(outcome(&two, nothing, &input).answer, b"");
}

#[test]
fn each_end_sends_its_own_types() {
    let wrong = |frame| LinkError::WrongEnd { frame };
    fails(&host(), nothing, &after_hello(&[frame(PUBKEY, 0, b"k")]), wrong(FrameType::Pubkey));
    fails(&helper(), nothing, &after_hello(&[open(1)]), wrong(FrameType::Open));
    fails(&helper(), nothing, &after_hello(&[frame(READY, 0, b"")]), wrong(FrameType::Ready));
    fails(&helper(), nothing, &after_hello(&[frame(ERROR, 0, b"")]), wrong(FrameType::Error));
}

#[test]
fn types_and_stream_0_go_together() {
    let wrong = |frame, id| LinkError::WrongStream { frame, id };
    for (kind, name) in [(DATA, FrameType::Data), (CLOSE, FrameType::Close), (EOF, FrameType::Eof)]
    {
        fails(&host(), nothing, &after_hello(&[frame(kind, 0, b"")]), wrong(name, 0));
    }
    let input = after_hello(&[frame(PUBKEY, 1, b"k")]);
    fails(&helper(), open_one, &input, wrong(FrameType::Pubkey, 1));
    let input = after_hello(&[frame(PING, 1, &[0; 8])]);
    fails(&helper(), open_one, &input, wrong(FrameType::Ping, 1));
    let input = after_hello(&[frame(READY, 1, b"")]);
    fails(&host(), nothing, &input, wrong(FrameType::Ready, 1));
}

#[test]
fn payloads_have_their_size() {
    for (kind, name, expected) in [
        (CLOSE, FrameType::Close, 0),
        (EOF, FrameType::Eof, 0),
        (WINDOW_FRAME, FrameType::Window, 4),
    ] {
        let input = after_hello(&[open(1), frame(kind, 1, b"sevenby")]);
        let error = LinkError::PayloadSize { frame: name, expected, came: 7 };
        fails(&host(), nothing, &input, error);
    }
    for (kind, name) in [(PING, FrameType::Ping), (PONG, FrameType::Pong)] {
        let error = LinkError::PayloadSize { frame: name, expected: 8, came: 9 };
        fails(&host(), nothing, &after_hello(&[frame(kind, 0, b"nine byte")]), error);
    }
    let error = LinkError::PayloadTooLong { frame: FrameType::Open, limit: 64, came: 65 };
    fails(&host(), nothing, &after_hello(&[frame(OPEN, 1, &[b'x'; 65])]), error);
    let error = LinkError::PayloadTooLong { frame: FrameType::Ready, limit: 16384, came: 16385 };
    fails(&host(), nothing, &after_hello(&[frame(READY, 0, &vec![b'x'; 16385])]), error);
}

#[test]
fn an_error_is_kept_up_to_4_kib_and_ready_can_come_again() {
    let input = after_hello(&[
        frame(ERROR, 0, &vec![b'e'; 100_000]),
        frame(READY, 0, b"gpg"),
        frame(READY, 0, b"gpg ssh"),
    ]);
    let events = outcome(&host(), nothing, &input).events;
    assert_eq!(events[1], Event::Error(vec![b'e'; 4096]));
    assert_eq!(events[2..], [Event::Ready(b"gpg".to_vec()), Event::Ready(b"gpg ssh".to_vec())]);
}

#[test]
fn nothing_comes_after_eof() {
    for (kind, name, payload) in [(DATA, FrameType::Data, &b"x"[..]), (EOF, FrameType::Eof, b"")] {
        let input = after_hello(&[open(1), frame(EOF, 1, b""), frame(kind, 1, payload)]);
        fails(&host(), nothing, &input, LinkError::AfterEof { frame: name, id: 1 });
    }
}

#[test]
fn new_keys_wait_until_the_ones_before_are_done() {
    let series = [frame(PUBKEY, 0, b"key"), frame(PUBKEY, 0, b"")].concat();
    let taken = outcome(&helper(), nothing, &after_hello(std::slice::from_ref(&series)));
    assert_eq!(taken.events[1..], [Event::Readable(StreamId::KEYS), Event::KeysEnd]);
    let input = after_hello(&[series.clone(), frame(PUBKEY, 0, b"k")[..9].to_vec()]);
    fails(&helper(), nothing, &input, LinkError::KeysTooSoon);

    let mut link = Endpoint::new(helper()).unwrap();
    link.receive(&after_hello(std::slice::from_ref(&series))).unwrap();
    assert_eq!(link.front(StreamId::KEYS), b"key");
    assert!(!link.is_finished(StreamId::KEYS));
    link.consume(StreamId::KEYS, 2);
    link.keys_done();
    assert_eq!(link.held(), 0);
    link.receive(&series).unwrap();
    assert_eq!(read(&mut link, StreamId::KEYS), b"key");
    assert!(link.is_finished(StreamId::KEYS));
}

#[test]
fn the_newest_ping_is_answered_and_a_pong_is_told() {
    let pings = [frame(PING, 0, b"00000001"), frame(PING, 0, b"00000002")].concat();
    let pong = frame(PONG, 0, &7u64.to_be_bytes());
    let outcome = outcome(&host(), nothing, &after_hello(&[pings, pong]));
    assert_eq!(outcome.answer, frame(PONG, 0, b"00000002"));
    assert_eq!(outcome.events[1..], [Event::Pong(7)]);
}

#[test]
fn a_dead_link_does_nothing_but_say_why() {
    let mut link = Endpoint::new(helper()).unwrap();
    let id = link.open(Lane::Gpg).unwrap();
    let dead = LinkError::ExpectedHello { came: DATA };
    assert_eq!(link.receive(&frame(DATA, 1, b"x")), Err(dead.clone()));
    assert_eq!(link.receive(&hello()), Err(dead.clone()));
    assert_eq!(link.open(Lane::Gpg), Err(dead.clone()));
    assert_eq!(link.write(id, b"x"), Err(dead.clone()));
    assert_eq!(link.ready(b""), Err(dead));
    assert_eq!(transmitted(&mut link), b"");
    link.fail("bad frame").unwrap();
    assert_eq!(transmitted(&mut link), frame(ERROR, 0, b"bad frame"));
}

#[test]
fn the_start_line_comes_within_64_kib() {
    let cookie = Cookie::new([0x5a; 16]);
    for (before, found) in [(START_LINE_LIMIT, true), (START_LINE_LIMIT + 1, false)] {
        let input = [vec![b'x'; before], cookie.start_line()].concat();
        for size in [1, 1000, usize::MAX] {
            let mut scanner = StartScanner::new(&cookie);
            let mut result = Ok(None);
            for piece in input.chunks(size.min(input.len())) {
                result = scanner.feed(piece).map(|end| end.map(|_| ()));
                if result.is_err() {
                    break;
                }
            }
            let error = LinkError::StartLineMissing { limit: START_LINE_LIMIT };
            assert_eq!(result, if found { Ok(Some(())) } else { Err(error) });
        }
    }
}
