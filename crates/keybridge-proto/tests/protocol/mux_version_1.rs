//! Version 1, byte for byte, at both ends.

use crate::pair::{Pair, config, events, frame, frames, held, outcome, pattern, read, transmitted};
use keybridge_proto::Lane;
use keybridge_proto::mux::{
    Config, End, Endpoint, Event, FrameType, HIGH_WATER, LinkError, MAX_DATA, MAX_PAYLOAD,
    StreamId, VERSION_1_LINK_BOUND, VERSION_1_STREAM_BOUND, Version,
};

const KEYS: StreamId = StreamId::KEYS;

fn host() -> Config {
    config(End::Host, Version::One)
}

fn helper() -> Config {
    config(End::Helper, Version::One)
}

fn nothing(_: &mut Endpoint) {}

fn open_one(link: &mut Endpoint) {
    link.open(Lane::Ssh).unwrap();
}

fn opened(link: &mut Endpoint) -> Vec<StreamId> {
    events(link)
        .into_iter()
        .filter_map(|event| match event {
            Event::Opened { id, .. } => Some(id),
            _ => None,
        })
        .collect()
}

#[test]
fn the_hosts_end_speaks_golden_bytes() {
    let mut link =
        Endpoint::new(Config { version_1_keys: Some(b"keys".to_vec()), ..host() }).unwrap();
    // Nothing goes before the keys, not even the answer to a stream.
    link.receive(b"\0\0\0\x0e\x02\0\0\0\x07gpg-agent").unwrap();
    let id = opened(&mut link)[0];
    assert_eq!(id.get(), 7, "any number above the last one");
    link.write(id, b"OK\n").unwrap();
    let golden = b"\0\0\0\x09\x04\0\0\0\0keys\0\0\0\x08\x01\0\0\0\x07OK\n";
    assert_eq!(transmitted(&mut link), golden);
    assert_eq!(link.write(KEYS, b"x"), Err(LinkError::KeysEnded));
    assert_eq!(link.end_keys(), Err(LinkError::KeysEnded));

    link.receive(b"\0\0\0\x08\x01\0\0\0\x07BYE").unwrap();
    link.receive(b"\0\0\0\x07\x05\0\0\0\0hi").unwrap();
    link.receive(b"\0\0\0\x08\x06\0\0\0\0bad").unwrap();
    let told = [Event::Readable(id), Event::Ready(b"hi".to_vec()), Event::Error(b"bad".to_vec())];
    assert_eq!(events(&mut link), told);
    assert_eq!(read(&mut link, id), b"BYE");
    assert_eq!(transmitted(&mut link), b"", "there is no credit to give");
    // There is no EOF either: CLOSE is after the bytes.
    link.write(id, b"OK\n").unwrap();
    link.finish(id);
    link.ping(1);
    assert_eq!(transmitted(&mut link), b"\0\0\0\x08\x01\0\0\0\x07OK\n\0\0\0\x05\x03\0\0\0\x07");
    assert_eq!(events(&mut link), [Event::Closed(id)]);
}

#[test]
fn a_host_without_the_gpg_lane_never_sends_keys_and_waits_for_none() {
    let config = Config { lanes: vec![Lane::Ssh], version_1_keys: None, ..host() };
    let mut link = Endpoint::new(config).unwrap();
    assert_eq!(link.write(KEYS, b"keys"), Err(LinkError::KeysEnded));
    assert_eq!(link.end_keys(), Err(LinkError::KeysEnded));
    link.receive(&frame(2, 1, b"ssh-agent")).unwrap();
    let id = opened(&mut link)[0];
    link.write(id, b"answer").unwrap();
    assert_eq!(transmitted(&mut link), frame(1, 1, b"answer"));
}

#[test]
fn the_helpers_end_speaks_golden_bytes() {
    let mut link = Endpoint::new(helper()).unwrap();
    link.receive(b"\0\0\0\x09\x04\0\0\0\0keys").unwrap();
    assert_eq!(events(&mut link), [Event::Readable(KEYS), Event::KeysEnd]);
    assert_eq!(read(&mut link, KEYS), b"keys");
    assert!(link.is_finished(KEYS));
    link.keys_done();
    link.ready(b"").unwrap();
    assert_eq!(transmitted(&mut link), b"\0\0\0\x05\x05\0\0\0\0");
    let id = link.open(Lane::Ssh).unwrap();
    link.write(id, b"hello").unwrap();
    link.finish(id);
    link.write(id, b" again").unwrap();
    let golden = b"\0\0\0\x0e\x02\0\0\0\x01ssh-agent\0\0\0\x10\x01\0\0\0\x01hello again";
    assert_eq!(transmitted(&mut link), golden);
    link.close(id);
    assert_eq!(transmitted(&mut link), b"\0\0\0\x05\x03\0\0\0\x01");
    link.fail("no gpgconf").unwrap();
    assert_eq!(transmitted(&mut link), b"\0\0\0\x0f\x06\0\0\0\0no gpgconf");
}

#[test]
fn a_close_of_the_host_leaves_its_bytes_to_be_read() {
    let mut link = Endpoint::new(Config { lanes: vec![Lane::Ssh], ..helper() }).unwrap();
    let id = link.open(Lane::Ssh).unwrap();
    link.write(id, b"asked").unwrap();
    transmitted(&mut link);
    link.write(id, b"unsent").unwrap();
    let input = [frame(1, 1, b"answer"), frame(3, 1, b""), frame(1, 1, b"late")].concat();
    link.receive(&input).unwrap();
    assert_eq!(events(&mut link), [Event::Readable(id), Event::Finished(id)]);
    link.write(id, b"for nobody").unwrap();
    assert!(!link.is_finished(id));
    assert_eq!(read(&mut link, id), b"answer");
    assert!(link.is_finished(id));
    link.close(id);
    assert_eq!(transmitted(&mut link), b"", "CLOSE isn't said twice");
    assert!(!link.is_finished(id));
}

#[test]
fn a_close_of_the_helper_drops_what_is_held() {
    let input = [frame(2, 1, b"gpg-agent"), frame(1, 1, b"bytes"), frame(3, 1, b"")].concat();
    let outcome = outcome(&host(), nothing, &input);
    assert_eq!((outcome.result, outcome.held, outcome.answer), (Ok(()), 0, vec![]));
    assert!(matches!(
        outcome.events[..],
        [Event::Opened { .. }, Event::Readable(_), Event::Closed(_)]
    ));
}

#[test]
fn keys_come_first_if_gpg_is_served() {
    let early = outcome(&helper(), open_one, &frame(1, 1, b"x")).result;
    assert_eq!(early, Err(LinkError::ExpectedKeys { came: 1 }));
    let early = outcome(&helper(), nothing, &frame(99, 0, b"")).result;
    assert_eq!(early, Err(LinkError::ExpectedKeys { came: 99 }));
    let ssh = Config { lanes: vec![Lane::Ssh], ..helper() };
    assert_eq!(outcome(&ssh, open_one, &frame(1, 1, b"x")).held, 1);
    // Types that it doesn't know are passed over when it has said READY, and not before.
    let unknown = [frame(4, 0, b""), frame(8, 1, &[0; 4])].concat();
    let early = outcome(&helper(), open_one, &unknown).result;
    assert_eq!(early, Err(LinkError::UnknownType { came: 8 }));
    let ready = |link: &mut Endpoint| link.ready(b"").unwrap();
    assert_eq!(outcome(&helper(), ready, &unknown).result, Ok(()));
    let late = [frame(12, 0, b"?"), frame(4, 0, b"late keys")].concat();
    let outcome = outcome(&helper(), ready, &late);
    assert_eq!(outcome.events, [Event::Readable(KEYS), Event::KeysEnd]);
}

#[test]
fn the_host_passes_over_what_it_does_not_know() {
    let unknown = (7..=12).flat_map(|kind| frame(kind, 5, b"payload")).collect::<Vec<u8>>();
    let keys = frame(4, 0, b"not for the host");
    let outcome = outcome(&host(), nothing, &[unknown, keys, frame(5, 0, b"")].concat());
    assert_eq!((outcome.result, outcome.events), (Ok(()), vec![Event::Ready(vec![])]));
}

#[test]
fn ids_go_up_and_must_have_been_opened() {
    let input = [frame(2, 5, b"gpg-agent"), frame(2, 5, b"gpg-agent")].concat();
    let error = LinkError::OpenOutOfOrder { expected: 6, came: 5 };
    assert_eq!(outcome(&host(), nothing, &input).result, Err(error));
    let error = LinkError::NeverOpened { frame: FrameType::Data, id: 1, highest: 0 };
    assert_eq!(outcome(&host(), nothing, &frame(1, 1, b"x")).result, Err(error));
}

#[test]
fn keys_over_1_mib_are_an_error() {
    let keys = Some(pattern(0, MAX_PAYLOAD + 1));
    let error = Endpoint::new(Config { version_1_keys: keys, ..host() }).unwrap_err();
    assert_eq!(error, LinkError::KeysTooLong { limit: 1_048_571 });
}

#[test]
fn the_largest_keys_pass() {
    let export = pattern(0, MAX_PAYLOAD);
    let host = Config { version_1_keys: Some(export.clone()), ..host() };
    let mut pair = Pair::with(host, helper());
    pair.run();
    assert!(read(&mut pair.helper, KEYS) == export);
    assert_eq!(pair.helper_events.last(), Some(&Event::KeysEnd));
}

#[test]
fn bytes_are_cut_and_take_turns_and_wait_below_the_high_water_mark() {
    let mut pair = Pair::begun(Version::One);
    let ids = pair.open(2);
    assert_eq!(pair.helper.writable(ids[0]), HIGH_WATER);
    pair.helper.write(ids[0], &pattern(0, HIGH_WATER)).unwrap();
    assert_eq!(pair.helper.writable(ids[0]), 0);
    pair.helper.write(ids[1], b"small").unwrap();
    let sent: Vec<_> = frames(&transmitted(&mut pair.helper))
        .into_iter()
        .map(|(kind, stream, payload)| (kind, stream, payload.len()))
        .collect();
    let rest = HIGH_WATER - 2 * MAX_DATA;
    assert_eq!(sent, [(1, 1, MAX_DATA), (1, 2, 5), (1, 1, MAX_DATA), (1, 1, rest)]);
    assert_eq!(events(&mut pair.helper), [Event::Writable(ids[0])]);
}

#[test]
fn a_stalled_stream_is_closed_at_its_bound_and_others_go_on() {
    let mut link = Endpoint::new(host()).unwrap();
    transmitted(&mut link);
    link.receive(&[frame(2, 1, b"gpg-agent"), frame(2, 2, b"gpg-agent")].concat()).unwrap();
    let ids = opened(&mut link);
    let part = frame(1, 1, &vec![7; VERSION_1_STREAM_BOUND / 4]);
    for _ in 0..4 {
        link.receive(&part).unwrap();
    }
    assert_eq!(link.held(), VERSION_1_STREAM_BOUND);
    assert_eq!(events(&mut link), [Event::Readable(ids[0])]);
    link.receive(&frame(1, 1, b"x")).unwrap();
    assert_eq!(events(&mut link), [Event::Closed(ids[0])]);
    assert_eq!(link.held(), 0);
    assert_eq!(transmitted(&mut link), frame(3, 1, b""));
    // What was on its way is dropped, and the other stream works.
    link.receive(&[part, frame(1, 2, b"alive")].concat()).unwrap();
    assert_eq!(events(&mut link), [Event::Readable(ids[1])]);
    assert_eq!(held(&link, ids[1]), b"alive");
}

#[test]
fn a_full_link_closes_whoever_holds_the_most() {
    let mut link = Endpoint::new(host()).unwrap();
    transmitted(&mut link);
    for id in 1..=10 {
        link.receive(&frame(2, id, b"gpg-agent")).unwrap();
    }
    let ids = opened(&mut link);
    for id in 1..=8 {
        let size = MAX_PAYLOAD - usize::from(id != 3);
        link.receive(&frame(1, id, &vec![0; size])).unwrap();
    }
    let small = VERSION_1_LINK_BOUND - link.held();
    link.receive(&frame(1, 9, &vec![0; small])).unwrap();
    assert_eq!(link.held(), VERSION_1_LINK_BOUND);
    events(&mut link);
    link.receive(&frame(1, 10, b"innocent")).unwrap();
    assert_eq!(events(&mut link), [Event::Closed(ids[2]), Event::Readable(ids[9])]);
    assert_eq!(link.held(), VERSION_1_LINK_BOUND - MAX_PAYLOAD + 8);
    assert_eq!(transmitted(&mut link), frame(3, 3, b""));
}

#[test]
fn a_writer_of_a_stream_that_the_host_closed_is_told() {
    let mut config = helper();
    config.lanes = vec![Lane::Ssh];
    let mut link = Endpoint::new(config).unwrap();
    let id = link.open(Lane::Ssh).unwrap();
    link.write(id, &vec![0; HIGH_WATER]).unwrap();
    assert_eq!(link.writable(id), 0);
    link.receive(&frame(1, 1, b"last words")).unwrap();
    link.receive(&frame(3, 1, b"")).unwrap();
    assert_eq!(events(&mut link), [Event::Readable(id), Event::Finished(id)]);
    assert!(!link.is_open(id));
    link.consume(id, 4);
    assert_eq!(events(&mut link), []);
    link.consume(id, 6);
    assert_eq!(events(&mut link), [Event::Closed(id)]);
}
