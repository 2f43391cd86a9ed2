//! The life of a bridge as a machine without I/O: events and the time go in, and what has to be done comes
//! out. `lifecycle.rs` does it.
//!
//! ```text
//!            ┌────────── link lost ──────────┐
//!            │                               ▼
//!  first ─▶ Linked ◀── it works ── Linking ◀─┴─ Pausing, longer each time
//!            │                     ▲   │            ▲
//!            └─ target stopped ─▶ Away └── it fails ┘
//! ```

use std::time::{Duration, Instant};

use crate::target::Presence;

/// The pause after the first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a login that was refused: it will be again, until a person does something, and hosts
/// lock out those who try too often.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);

/// How long an attempt may take at least, even if the network keeps changing.
const LOGIN_TIME: Duration = Duration::from_secs(3);

/// A link that ended sooner isn't made again at once: something is wrong with it.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// What happens to a bridge.
#[derive(Debug)]
pub(super) enum Event {
    /// News of the target. A restart is news, even if it was running before too.
    Target(Presence),
    /// The attempt has made a link.
    Linked,
    /// The attempt has made a link with settings that were changed meanwhile.
    Outdated,
    /// The attempt has failed.
    Failed(Failure),
    /// The link has ended, or has to be made again.
    LinkLost,
    /// A person wants an attempt now.
    Wanted,
    /// The bridge has to end.
    StopAsked,
}

/// Why an attempt has failed, as far as that decides about the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The host has refused the login.
    Refused,
    /// Anything else.
    Other,
}

/// What has to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Go on with what is under way.
    GoOn,
    /// Begin an attempt to make a link, in place of one that is under way.
    Link,
    /// Give up the link, or the attempt, and wait: the target is away.
    Rest(Presence),
    /// Ask whether the link lives: nothing else tells, while the target's engine is away.
    CheckLink,
    /// The target is paused: don't.
    PauseLink,
    /// The target runs again: ask whether the link lives.
    ResumeLink,
    /// Undo what was done in the target, and end.
    Stop,
    /// End: the target was removed.
    TargetRemoved,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Life {
    state: State,
    /// The last news of the target.
    target: Presence,
    /// How long the next pause is.
    pause: Duration,
    longest_pause: Duration,
}

#[derive(Debug)]
enum State {
    Linked {
        since: Instant,
    },
    Linking {
        began: Instant,
        /// A person may be asked meanwhile, and isn't interrupted.
        asks: bool,
        /// The network has changed: a login may wait for an answer that can't come.
        network_changed: bool,
        /// Somebody wants the next attempt without a pause.
        wanted: bool,
    },
    Pausing {
        until: Instant,
        /// The login was refused: a network that changes doesn't help.
        refused: bool,
    },
    Away,
    Over,
}

impl Life {
    /// A bridge without a link. [`Self::begin`] says what to do first.
    pub(super) fn new(target: Presence, longest_pause: Duration) -> Self {
        Self { state: State::Away, target, pause: FIRST_PAUSE, longest_pause }
    }

    /// Begins with a link, or with an attempt to make one.
    pub(super) fn begin(&mut self, is_linked: bool, now: Instant) -> Action {
        if is_linked { self.linked(now) } else { self.link_if_there(now) }
    }

    /// Lets a person be asked during the attempt that has just begun.
    pub(super) fn allow_questions(&mut self) {
        if let State::Linking { asks, .. } = &mut self.state {
            *asks = true;
        }
    }

    /// When to call [`Self::timeout`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Linking { network_changed: true, began, .. } => Some(began + LOGIN_TIME),
            State::Pausing { until, .. } => Some(until),
            State::Linking { .. } | State::Linked { .. } | State::Away | State::Over => None,
        }
    }

    /// The deadline may have passed.
    pub(super) fn timeout(&mut self, now: Instant) -> Action {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Action::GoOn;
        }
        if let State::Pausing { refused, .. } = self.state {
            self.pause =
                if refused { FIRST_PAUSE } else { (self.pause * 2).min(self.longest_pause) };
        }
        self.link_if_there(now)
    }

    /// Something has happened.
    pub(super) fn handle(&mut self, event: Event, now: Instant) -> Action {
        match event {
            Event::Target(presence) => self.news(presence, now),
            Event::Linked => self.linked(now),
            Event::Outdated => self.link_if_there(now),
            Event::Failed(failure) => self.failed(failure, now),
            Event::LinkLost => self.lost(now),
            Event::Wanted => self.wanted(now),
            Event::StopAsked => {
                self.state = State::Over;
                Action::Stop
            }
        }
    }

    fn news(&mut self, presence: Presence, now: Instant) -> Action {
        self.target = presence;
        let runs = self.target == Presence::Running;
        match &mut self.state {
            State::Linked { .. } => self.keep_link(),
            State::Linking { asks, network_changed, .. } if runs => {
                *network_changed = !*asks;
                Action::GoOn
            }
            State::Pausing { refused: true, .. } if runs => Action::GoOn,
            State::Linking { .. } | State::Pausing { .. } | State::Away => {
                self.pause = FIRST_PAUSE;
                self.link_if_there(now)
            }
            State::Over => Action::GoOn,
        }
    }

    fn linked(&mut self, now: Instant) -> Action {
        self.state = State::Linked { since: now };
        if self.target == Presence::Running { Action::GoOn } else { self.keep_link() }
    }

    /// What the target's presence means for a link.
    fn keep_link(&mut self) -> Action {
        match &self.target {
            Presence::Running => Action::ResumeLink,
            Presence::Paused => Action::PauseLink,
            // The link may still work; if not, its own pings show it.
            Presence::Unreachable(_) => Action::CheckLink,
            Presence::Stopped => self.rest(),
            Presence::Removed => self.end(),
        }
    }

    /// Makes a link if the target runs.
    fn link_if_there(&mut self, now: Instant) -> Action {
        match &self.target {
            Presence::Running => {
                self.state = State::Linking {
                    began: now,
                    asks: false,
                    network_changed: false,
                    wanted: false,
                };
                Action::Link
            }
            Presence::Removed => self.end(),
            Presence::Paused | Presence::Stopped | Presence::Unreachable(_) => self.rest(),
        }
    }

    fn rest(&mut self) -> Action {
        self.state = State::Away;
        self.pause = FIRST_PAUSE;
        Action::Rest(self.target.clone())
    }

    fn end(&mut self) -> Action {
        self.state = State::Over;
        Action::TargetRemoved
    }

    fn failed(&mut self, failure: Failure, now: Instant) -> Action {
        if let State::Linking { wanted: true, .. } = self.state {
            self.pause = FIRST_PAUSE;
            return self.link_if_there(now);
        }
        let refused = failure == Failure::Refused;
        let until = now + if refused { REFUSED_PAUSE } else { self.pause };
        self.state = State::Pausing { until, refused };
        Action::GoOn
    }

    fn lost(&mut self, now: Instant) -> Action {
        let State::Linked { since } = self.state else { return Action::GoOn };
        if now.duration_since(since) >= GOOD_LIFE {
            self.pause = FIRST_PAUSE;
            return self.link_if_there(now);
        }
        self.state = State::Pausing { until: now + self.pause, refused: false };
        Action::GoOn
    }

    fn wanted(&mut self, now: Instant) -> Action {
        match &mut self.state {
            State::Pausing { .. } => {
                self.pause = FIRST_PAUSE;
                self.link_if_there(now)
            }
            State::Linking { wanted, .. } => {
                *wanted = true;
                Action::GoOn
            }
            State::Linked { .. } | State::Away | State::Over => Action::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    const LONGEST: Duration = Duration::from_secs(30);

    /// A bridge, and a clock that the test sets.
    struct Bridge {
        life: Life,
        now: Instant,
    }

    impl Bridge {
        fn linking() -> Self {
            let mut bridge = Self::at(Presence::Running);
            assert_eq!(bridge.life.begin(false, bridge.now), Action::Link);
            bridge
        }

        fn linked() -> Self {
            let mut bridge = Self::at(Presence::Running);
            assert_eq!(bridge.life.begin(true, bridge.now), Action::GoOn);
            bridge
        }

        fn at(presence: Presence) -> Self {
            Self { life: Life::new(presence, LONGEST), now: Instant::now() }
        }

        fn on(&mut self, event: Event) -> Action {
            self.life.handle(event, self.now)
        }

        fn fails(&mut self) -> Action {
            self.on(Event::Failed(Failure::Other))
        }

        fn after(&mut self, time: Duration) -> Action {
            self.now += time;
            self.life.timeout(self.now)
        }

        /// How long nothing happens.
        fn waits(&self) -> Option<Duration> {
            self.life.deadline().map(|deadline| deadline - self.now)
        }
    }

    fn unreachable() -> Presence {
        Presence::Unreachable(Error::failed("no engine"))
    }

    #[test]
    fn pauses_between_attempts_double_up_to_the_longest() {
        let mut bridge = Bridge::linking();
        let mut pauses = Vec::new();
        for _ in 0..11 {
            assert_eq!(bridge.fails(), Action::GoOn);
            let half = bridge.waits().unwrap() / 2;
            pauses.push(2 * half.as_millis());
            assert_eq!(bridge.after(half), Action::GoOn);
            assert_eq!(bridge.after(half), Action::Link);
        }
        let doubled = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses, doubled);
    }

    #[test]
    fn news_of_the_target_and_a_person_end_a_pause_and_make_the_next_one_short() {
        for event in [|| Event::Target(Presence::Running), || Event::Wanted] {
            let mut bridge = Bridge::linking();
            for _ in 0..5 {
                bridge.fails();
                bridge.after(bridge.waits().unwrap());
            }
            bridge.fails();
            assert_eq!(bridge.on(event()), Action::Link);
            bridge.fails();
            assert_eq!(bridge.waits(), Some(FIRST_PAUSE));
        }
    }

    #[test]
    fn a_refused_login_waits_for_a_person_or_five_minutes_whatever_the_network_does() {
        let mut bridge = Bridge::linking();
        bridge.on(Event::Failed(Failure::Refused));
        assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::GoOn);
        assert_eq!(bridge.waits(), Some(Duration::from_mins(5)));
        assert_eq!(bridge.after(Duration::from_secs(299)), Action::GoOn);
        assert_eq!(bridge.after(Duration::from_secs(1)), Action::Link);
        bridge.on(Event::Failed(Failure::Refused));
        assert_eq!(bridge.on(Event::Wanted), Action::Link);
        bridge.on(Event::Failed(Failure::Refused));
        assert_eq!(bridge.on(Event::Target(Presence::Removed)), Action::TargetRemoved);
    }

    #[test]
    fn a_person_who_comes_during_an_attempt_gets_the_next_one_without_a_pause() {
        let mut bridge = Bridge::linking();
        assert_eq!(bridge.on(Event::Wanted), Action::GoOn);
        assert_eq!(bridge.on(Event::Failed(Failure::Refused)), Action::Link);
        bridge.on(Event::Failed(Failure::Refused));
        assert_eq!(bridge.waits(), Some(REFUSED_PAUSE), "once");
    }

    #[test]
    fn a_link_that_lived_long_is_made_again_at_once_and_a_short_one_after_a_pause() {
        let mut bridge = Bridge::linked();
        bridge.now += GOOD_LIFE;
        assert_eq!(bridge.on(Event::LinkLost), Action::Link);
        bridge.on(Event::Linked);
        bridge.now += GOOD_LIFE / 2;
        assert_eq!(bridge.on(Event::LinkLost), Action::GoOn);
        assert_eq!(bridge.after(FIRST_PAUSE), Action::Link);
        bridge.on(Event::Linked);
        assert_eq!(bridge.on(Event::LinkLost), Action::GoOn);
        assert_eq!(bridge.waits(), Some(FIRST_PAUSE * 2));
    }

    #[test]
    fn a_target_that_stops_is_waited_for_and_linked_again_at_once() {
        for presence in [Presence::Stopped, Presence::Paused, unreachable()] {
            let mut bridge = Bridge::linking();
            bridge.fails();
            bridge.after(FIRST_PAUSE);
            let rest = Action::Rest(presence.clone());
            assert_eq!(bridge.on(Event::Target(presence)), rest, "while linking");
            assert_eq!(bridge.on(Event::Wanted), Action::GoOn);
            assert_eq!(bridge.waits(), None);
            assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::Link);
            bridge.fails();
            assert_eq!(bridge.waits(), Some(FIRST_PAUSE));
        }
        let mut bridge = Bridge::linked();
        let stopped = Event::Target(Presence::Stopped);
        assert_eq!(bridge.on(stopped), Action::Rest(Presence::Stopped));
    }

    #[test]
    fn a_link_stays_while_its_target_is_paused_or_its_engine_is_away() {
        let mut bridge = Bridge::linked();
        assert_eq!(bridge.on(Event::Target(Presence::Paused)), Action::PauseLink);
        assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::ResumeLink);
        assert_eq!(bridge.on(Event::Target(unreachable())), Action::CheckLink);
        assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::ResumeLink, "restarted");
        // A target that was paused while its link was made.
        let mut bridge = Bridge::at(Presence::Paused);
        assert_eq!(bridge.life.begin(true, bridge.now), Action::PauseLink);
    }

    #[test]
    fn a_network_that_changes_ends_an_attempt_but_not_before_a_login_had_its_time() {
        let mut bridge = Bridge::linking();
        bridge.now += Duration::from_secs(1);
        for _ in 0..3 {
            assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::GoOn);
        }
        assert_eq!(bridge.waits(), Some(Duration::from_secs(2)));
        assert_eq!(bridge.after(Duration::from_secs(2)), Action::Link);
        assert_eq!(bridge.waits(), None);
    }

    #[test]
    fn a_person_who_is_asked_is_interrupted_only_by_a_target_that_goes() {
        let mut bridge = Bridge::linking();
        bridge.life.allow_questions();
        assert_eq!(bridge.on(Event::Target(Presence::Running)), Action::GoOn);
        assert_eq!(bridge.waits(), None);
        let stopped = Event::Target(Presence::Stopped);
        assert_eq!(bridge.on(stopped), Action::Rest(Presence::Stopped));
    }

    #[test]
    fn a_link_with_settings_that_have_changed_is_made_again() {
        let mut bridge = Bridge::linking();
        assert_eq!(bridge.on(Event::Outdated), Action::Link);
    }

    #[test]
    fn a_bridge_ends_when_it_is_stopped_or_its_target_is_removed_and_does_nothing_more() {
        let begun: [fn() -> Bridge; 3] =
            [Bridge::linked, Bridge::linking, || Bridge::at(Presence::Stopped)];
        for begin in begun {
            let mut removed = begin();
            assert_eq!(removed.on(Event::Target(Presence::Removed)), Action::TargetRemoved);
            let mut stopped = begin();
            assert_eq!(stopped.on(Event::StopAsked), Action::Stop);
            assert_eq!(stopped.on(Event::Target(Presence::Running)), Action::GoOn);
            assert_eq!(stopped.on(Event::Wanted), Action::GoOn);
            assert_eq!(stopped.waits(), None);
        }
    }
}
