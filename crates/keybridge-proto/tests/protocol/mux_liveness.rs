//! Both ends of a link in stepped time, over wires that can go dead.

use std::time::{Duration, Instant};

use crate::pair::{Pair, frames, transmitted};
use keybridge_proto::Lane;
use keybridge_proto::mux::{Due, End, IDLE_PING, Liveness, SILENCE_LIMIT, Version};

const PING: u8 = 10;

const STEP: Duration = Duration::from_millis(100);

/// A pair of ends with their clocks.
struct Timed {
    pair: Pair,
    host: Liveness,
    helper: Liveness,
    now: Instant,
    /// Nothing comes through, and nobody is told.
    dead: bool,
    pings: usize,
}

/// Which end has lost its link.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lost {
    host: bool,
    helper: bool,
}

impl Timed {
    fn new(version: Version) -> Self {
        let now = Instant::now();
        Self {
            pair: Pair::begun(version),
            host: Liveness::new(version, End::Host, now),
            helper: Liveness::new(version, End::Helper, now),
            now,
            dead: false,
            pings: 0,
        }
    }

    fn open(&mut self) {
        self.pair.helper.open(Lane::Gpg).unwrap();
        if self.helper.opened(self.now) {
            self.pair.helper.ping(1);
        }
    }

    /// Lets time pass; says who found the link lost.
    fn pass(&mut self, time: Duration) -> Lost {
        let end = self.now + time;
        let mut lost = Lost::default();
        while self.now < end {
            self.now += STEP;
            self.exchange();
            match self.host.timeout(self.now) {
                Some(Due::Ping) => self.pair.host.ping(2),
                Some(Due::Lost) => lost.host = true,
                None => {}
            }
            match self.helper.timeout(self.now) {
                Some(Due::Ping) => self.pair.helper.ping(3),
                Some(Due::Lost) => lost.helper = true,
                None => {}
            }
        }
        lost
    }

    fn exchange(&mut self) {
        loop {
            let to_host = transmitted(&mut self.pair.helper);
            let to_helper = transmitted(&mut self.pair.host);
            for frames in [frames(&to_host), frames(&to_helper)] {
                self.pings += frames.iter().filter(|frame| frame.0 == PING).count();
            }
            if self.dead || (to_host.is_empty() && to_helper.is_empty()) {
                return;
            }
            if !to_host.is_empty() {
                self.pair.host.receive(&to_host).unwrap();
                self.host.heard(self.now);
            }
            if !to_helper.is_empty() {
                self.pair.helper.receive(&to_helper).unwrap();
                self.helper.heard(self.now);
            }
        }
    }
}

#[test]
fn an_idle_link_is_kept_by_few_pings() {
    let mut link = Timed::new(Version::Two);
    assert_eq!(link.pass(Duration::from_mins(10)), Lost::default());
    assert!((30..=40).contains(&link.pings), "{}", link.pings);
}

#[test]
fn the_host_finds_a_dead_link_by_itself() {
    let mut link = Timed::new(Version::Two);
    link.dead = true;
    assert_eq!(link.pass((IDLE_PING + SILENCE_LIMIT).saturating_sub(STEP)), Lost::default());
    assert_eq!(link.pass(Duration::from_secs(1)), Lost { host: true, helper: false });
    assert_eq!(link.pass(Duration::from_hours(1)), Lost::default(), "lost once");
}

#[test]
fn an_open_finds_a_dead_link_within_five_seconds() {
    let mut link = Timed::new(Version::Two);
    link.pass(Duration::from_secs(3));
    link.dead = true;
    link.open();
    assert_eq!(link.pass(SILENCE_LIMIT.saturating_sub(STEP)), Lost::default());
    assert_eq!(link.pass(Duration::from_secs(1)), Lost { host: false, helper: true });
}

#[test]
fn an_open_on_a_link_that_was_just_heard_sends_no_ping() {
    let mut link = Timed::new(Version::Two);
    for _ in 0..5 {
        link.open();
        // Whatever comes is an answer: here the credit for some bytes.
        link.pass(STEP);
        link.helper.heard(link.now);
    }
    assert_eq!(link.pings, 0);
    link.pass(Duration::from_secs(2));
    link.open();
    link.pass(STEP);
    assert_eq!(link.pings, 1);
    assert_eq!(link.pass(Duration::from_secs(10)), Lost::default());
}

#[test]
fn a_link_that_comes_back_in_time_is_kept() {
    let mut link = Timed::new(Version::Two);
    link.pass(Duration::from_secs(3));
    link.open();
    // The PING waits in a pipe that moves on after four seconds.
    let waiting = transmitted(&mut link.pair.helper);
    link.dead = true;
    assert_eq!(link.pass(Duration::from_secs(4)), Lost::default());
    link.dead = false;
    link.pair.host.receive(&waiting).unwrap();
    link.host.heard(link.now);
    assert_eq!(link.pass(Duration::from_mins(1)), Lost::default());
}

#[test]
fn a_version_1_link_is_never_asked_nor_lost() {
    let mut link = Timed::new(Version::One);
    link.dead = true;
    link.open();
    assert_eq!(link.pass(Duration::from_mins(5)), Lost::default());
    assert_eq!(link.pings, 0);
}
