//! When to send a PING on a silent link, and when to give it up.
//!
//! ```text
//!           silence, an OPEN after silence,
//!           or a call of ask()
//! Listening ───────────────────────────▶ Asked ──── 5 s ────▶ Doubtful ── 200 ms ──▶ Lost
//!     ▲                                    │                      │
//!     └────────── anything arrives  ───────┴──────────────────────┘
//! ```
//!
//! Every state but Lost can be suspended, and is Listening when it is resumed. If a deadline is
//! noticed late, this program itself was held up, and it sends another PING.

use std::time::{Duration, Instant};

use super::{End, Version};

/// How long a host's link is silent before a PING: a dead link is found within half a minute, and an idle
/// one rarely wakes anything up.
pub const IDLE_PING: Duration = Duration::from_secs(15);

/// How long the link may be silent after a PING. An open pinentry doesn't matter: the peer's program
/// answers.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// If anything arrived within this time, an OPEN needs no PING.
const FRESH: Duration = Duration::from_secs(2);

/// How long a program that was held up takes to read what waits in its pipe.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// By how much a deadline is missed if the program was held up.
const LATE: Duration = Duration::from_secs(1);

/// Whether the peer of a link is alive, as far as this end knows. Owned by the code that moves the link's
/// bytes.
#[derive(Debug, Clone)]
pub struct Liveness {
    end: End,
    /// How many streams this end has open: their clients wait for answers.
    open: usize,
    heard: Instant,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The peer can't be asked.
    Off,
    Listening,
    /// A PING was sent.
    Asked {
        until: Instant,
    },
    /// No answer in time, but what has arrived meanwhile is still to be read.
    Doubtful {
        until: Instant,
    },
    /// The peer is known to be unable to answer for now.
    Suspended,
    Lost,
}

/// What to do at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A PING is to be sent.
    Ping,
    /// The link is lost.
    Lost,
}

impl Liveness {
    /// A link that begins now. Silence alone leads to a PING at the host, the end that can reconnect.
    /// Version 1 has no PING, and its links are never given up.
    pub fn new(version: Version, end: End, now: Instant) -> Self {
        let state = match version {
            Version::One => State::Off,
            Version::Two => State::Listening,
        };
        Self { end, open: 0, heard: now, state }
    }

    /// Something came.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
        match self.state {
            State::Asked { .. } | State::Doubtful { .. } => self.state = State::Listening,
            State::Off | State::Listening | State::Suspended | State::Lost => {}
        }
    }

    /// A stream was opened. Returns whether to send a PING with it. While one is open, silence leads to a
    /// PING too.
    pub fn opened(&mut self, now: Instant) -> bool {
        self.open += 1;
        now.saturating_duration_since(self.heard) >= FRESH && self.ask(now)
    }

    /// A stream that was opened is closed.
    pub fn closed(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Checks whether the peer is alive. Returns whether to send a PING: at most one is unanswered at
    /// a time.
    pub fn ask(&mut self, now: Instant) -> bool {
        match self.state {
            State::Listening => {
                self.state = State::Asked { until: now + SILENCE_LIMIT };
                true
            }
            State::Off
            | State::Asked { .. }
            | State::Doubtful { .. }
            | State::Suspended
            | State::Lost => false,
        }
    }

    /// When [`Self::timeout`] has to be called. It can move to a later time.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Listening => {
                let is_asked = self.end == End::Host || self.open > 0;
                is_asked.then(|| self.heard + IDLE_PING)
            }
            State::Asked { until } | State::Doubtful { until } => Some(until),
            State::Off | State::Suspended | State::Lost => None,
        }
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant) -> Option<Due> {
        let deadline = self.deadline().filter(|deadline| *deadline <= now)?;
        let was_away = now.saturating_duration_since(deadline) > LATE;
        match self.state {
            State::Asked { .. } | State::Doubtful { .. } if was_away => {
                self.state = State::Listening;
                self.ask(now).then_some(Due::Ping)
            }
            State::Listening => self.ask(now).then_some(Due::Ping),
            State::Asked { .. } => {
                self.state = State::Doubtful { until: now + SECOND_LOOK };
                None
            }
            State::Doubtful { .. } => {
                self.state = State::Lost;
                Some(Due::Lost)
            }
            State::Off | State::Suspended | State::Lost => None,
        }
    }

    /// The peer can't answer from now on, and isn't asked.
    pub fn suspend(&mut self) {
        match self.state {
            State::Listening | State::Asked { .. } | State::Doubtful { .. } => {
                self.state = State::Suspended;
            }
            State::Off | State::Suspended | State::Lost => {}
        }
    }

    /// The peer can answer again.
    pub fn resume(&mut self, now: Instant) {
        match self.state {
            State::Suspended => {
                self.heard = now;
                self.state = State::Listening;
            }
            State::Off
            | State::Listening
            | State::Asked { .. }
            | State::Doubtful { .. }
            | State::Lost => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::unchecked_time_subtraction, reason = "of times that are far from their bounds")]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn silence_brings_a_ping_where_it_is_asked_for_and_nothing_elsewhere() {
        let start = Instant::now();
        let mut host = Liveness::new(Version::Two, End::Host, start);
        assert_eq!(host.deadline(), Some(start + IDLE_PING));
        assert_eq!(host.timeout(start + IDLE_PING - MS), None);
        host.heard(start + IDLE_PING - MS);
        assert_eq!(host.timeout(start + IDLE_PING), None);
        let due = host.deadline().unwrap();
        assert_eq!(due, start + IDLE_PING * 2 - MS);
        assert_eq!(host.timeout(due), Some(Due::Ping));
        assert_eq!(host.deadline(), Some(due + SILENCE_LIMIT));

        let mut helper = Liveness::new(Version::Two, End::Helper, start);
        assert_eq!(helper.deadline(), None);
        assert_eq!(helper.timeout(start + Duration::from_hours(1)), None);
    }

    #[test]
    fn an_open_asks_only_after_silence_and_only_once() {
        let start = Instant::now();
        let mut helper = Liveness::new(Version::Two, End::Helper, start);
        assert!(!helper.opened(start + FRESH - MS));
        assert!(helper.opened(start + FRESH));
        assert!(!helper.opened(start + FRESH + MS));
        assert!(!helper.ask(start + FRESH + MS));
        let heard = start + FRESH + MS;
        helper.heard(heard);
        assert_eq!(helper.deadline(), Some(heard + IDLE_PING), "three streams wait");
        for _ in 0..3 {
            helper.closed();
        }
        assert_eq!(helper.deadline(), None);
        assert!(helper.opened(start + FRESH * 2 + MS));
    }

    #[test]
    fn no_answer_and_nothing_at_the_second_look_is_a_loss() {
        let start = Instant::now();
        let mut link = Liveness::new(Version::Two, End::Helper, start);
        assert!(link.ask(start));
        assert_eq!(link.timeout(start + SILENCE_LIMIT - MS), None);
        assert_eq!(link.timeout(start + SILENCE_LIMIT), None);
        let second = link.deadline().unwrap();
        assert_eq!(second, start + SILENCE_LIMIT + SECOND_LOOK);
        let mut saved = link.clone();
        saved.heard(second - MS);
        assert_eq!(saved.timeout(second), None);
        assert!(saved.ask(second));

        assert_eq!(link.timeout(second), Some(Due::Lost));
        assert_eq!(link.deadline(), None);
        link.heard(second);
        assert!(!link.ask(second) && !link.opened(second + FRESH));
        link.suspend();
        link.resume(second);
        assert_eq!(link.timeout(second + SILENCE_LIMIT), None);
    }

    #[test]
    fn one_that_was_away_itself_asks_again() {
        let start = Instant::now();
        for looked in [false, true] {
            let mut link = Liveness::new(Version::Two, End::Helper, start);
            assert!(link.ask(start));
            if looked {
                assert_eq!(link.timeout(start + SILENCE_LIMIT), None);
            }
            let woken = start + SILENCE_LIMIT + SECOND_LOOK + LATE + MS;
            assert_eq!(link.timeout(woken), Some(Due::Ping));
            assert_eq!(link.deadline(), Some(woken + SILENCE_LIMIT));
        }
    }

    #[test]
    fn a_peer_that_is_known_to_be_held_up_is_not_asked() {
        let start = Instant::now();
        for asked in [false, true] {
            let mut host = Liveness::new(Version::Two, End::Host, start);
            assert!(host.ask(start));
            if !asked {
                host.heard(start);
            }
            host.suspend();
            let later = start + Duration::from_hours(1);
            assert_eq!((host.deadline(), host.timeout(later)), (None, None));
            assert!(!host.ask(later) && !host.opened(later));
            host.heard(later);
            assert_eq!(host.deadline(), None);
            host.resume(later);
            assert_eq!(host.deadline(), Some(later + IDLE_PING));
            // Told twice, it is the same.
            host.resume(later + IDLE_PING);
            assert_eq!(host.deadline(), Some(later + IDLE_PING));
        }
    }

    #[test]
    fn version_1_has_none_of_this() {
        let start = Instant::now();
        let mut host = Liveness::new(Version::One, End::Host, start);
        let later = start + Duration::from_hours(1);
        assert_eq!((host.deadline(), host.timeout(later)), (None, None));
        assert!(!host.ask(later) && !host.opened(later));
        host.suspend();
        host.resume(later);
        assert!(!host.ask(later));
    }
}
