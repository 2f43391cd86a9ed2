//! Both ends of a link in one place, with wires that carry as many bytes as a test says.

use keybridge_proto::Lane;
use keybridge_proto::mux::{Config, End, Endpoint, Event, LinkError, StreamId, Version};

pub struct Pair {
    pub host: Endpoint,
    pub helper: Endpoint,
    pub host_events: Vec<Event>,
    pub helper_events: Vec<Event>,
    pub to_host: Vec<u8>,
    pub to_helper: Vec<u8>,
}

impl Pair {
    /// Two ends that haven't said anything.
    pub fn new(version: Version) -> Self {
        Self::with(config(End::Host, version), config(End::Helper, version))
    }

    pub fn with(host: Config, helper: Config) -> Self {
        Self {
            host: Endpoint::new(host).unwrap(),
            helper: Endpoint::new(helper).unwrap(),
            host_events: Vec::new(),
            helper_events: Vec::new(),
            to_host: Vec::new(),
            to_helper: Vec::new(),
        }
    }

    /// Two ends after what comes before the first stream.
    pub fn begun(version: Version) -> Self {
        let mut pair = Self::new(version);
        if version == Version::Two {
            pair.host.end_keys().unwrap();
        }
        pair.run();
        pair.helper.keys_done();
        pair.forget_events();
        pair
    }

    /// Opens streams, and returns when both ends know them.
    pub fn open(&mut self, count: usize) -> Vec<StreamId> {
        let ids = (0..count).map(|_| self.helper.open(Lane::Gpg).unwrap()).collect();
        self.run();
        self.forget_events();
        ids
    }

    /// Moves at most so many bytes each way; false if there was nothing to move.
    pub fn step(&mut self, bytes: usize) -> bool {
        if self.to_host.is_empty() {
            self.helper.transmit(&mut self.to_host);
        }
        if self.to_helper.is_empty() {
            self.host.transmit(&mut self.to_helper);
        }
        let up = self.to_host.len().min(bytes);
        let down = self.to_helper.len().min(bytes);
        self.host.receive(&self.to_host[..up]).unwrap();
        self.helper.receive(&self.to_helper[..down]).unwrap();
        self.to_host.drain(..up);
        self.to_helper.drain(..down);
        self.host_events.extend(std::iter::from_fn(|| self.host.poll_event()));
        self.helper_events.extend(std::iter::from_fn(|| self.helper.poll_event()));
        up + down > 0
    }

    /// Moves bytes until there are none.
    pub fn run(&mut self) {
        while self.step(usize::MAX) {}
        assert!(!self.host.wants_transmit());
        assert!(!self.helper.wants_transmit());
    }

    pub fn forget_events(&mut self) {
        self.host_events.clear();
        self.helper_events.clear();
    }
}

pub fn config(end: End, version: Version) -> Config {
    Config { version_1_keys: Some(Vec::new()), ..Config::new(end, version, &Lane::ALL) }
}

/// A frame made by hand.
pub fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 5).unwrap();
    [&length.to_be_bytes()[..], &[kind], &stream.to_be_bytes(), payload].concat()
}

/// The frames in bytes that end with a whole frame.
pub fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        frames.push((bytes[4], stream, bytes[9..4 + length].to_vec()));
        bytes = &bytes[4 + length..];
    }
    frames
}

pub fn transmitted(link: &mut Endpoint) -> Vec<u8> {
    let mut all = Vec::new();
    while link.wants_transmit() {
        let mut out = Vec::new();
        link.transmit(&mut out);
        all.extend_from_slice(&out);
    }
    all
}

pub fn events(link: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

/// Everything that can be read from a stream, without consuming it.
pub fn held(link: &Endpoint, id: StreamId) -> Vec<u8> {
    link.received(id).flatten().copied().collect()
}

/// Reads and consumes everything.
pub fn read(link: &mut Endpoint, id: StreamId) -> Vec<u8> {
    let bytes = held(link, id);
    link.consume(id, bytes.len());
    bytes
}

/// Bytes that show where they are in their stream.
pub fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|position| u8::try_from(position % 251).unwrap()).collect()
}

/// What an end does with input.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub result: Result<(), LinkError>,
    pub events: Vec<Event>,
    pub answer: Vec<u8>,
    pub held: usize,
}

/// What a fresh end does with input, which must be the same however the input is split.
pub fn outcome(config: &Config, prepare: fn(&mut Endpoint), input: &[u8]) -> Outcome {
    let feed = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut link = Endpoint::new(config.clone()).unwrap();
        prepare(&mut link);
        transmitted(&mut link);
        events(&mut link);
        let mut result = Ok(());
        for piece in pieces {
            result = link.receive(piece);
        }
        if result.is_err() {
            assert_eq!(link.receive(&frame(99, 0, b"")), result, "a dead link stays dead");
            assert!(!link.wants_transmit());
        }
        let events = events(&mut link);
        let held = link.held();
        Outcome { result, events, answer: transmitted(&mut link), held }
    };
    let whole = feed(&mut std::iter::once(input));
    if input.len() < 4096 {
        for at in 1..input.len() {
            let (first, second) = input.split_at(at);
            assert_eq!(feed(&mut [first, second].into_iter()), whole, "split at {at}");
        }
        assert_eq!(feed(&mut input.chunks(1)), whole, "one byte at a time");
    } else {
        assert_eq!(feed(&mut input.chunks(4093)), whole, "4093 bytes at a time");
    }
    whole
}
