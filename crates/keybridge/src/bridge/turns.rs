//! Whose bytes the thread moves between two times that it sleeps.
//!
//! After bytes of one client alone, it stays awake for a moment. If it sleeps at once, the kernel is more
//! likely to spread client, bridge and agent over processors that each have to be woken for every message:
//! docs/speed.md has the figures. While the messages of several clients interleave, others can use the time,
//! and there is no pause. While several are there at once, they are sent together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The pause is a quarter of the time from the last wake-up to the last write: it has to be longer where
/// everything takes longer.
const PAUSE_PART: u32 = 4;

/// A thread that has lost its processor meanwhile doesn't make up for it.
const LONGEST_PAUSE: Duration = Duration::from_micros(4);

/// Where there is only one processor, nobody else could run during a pause.
static CAN_PAUSE: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|processors| processors.get() > 1));

/// There is one such thread.
static TURNS: Mutex<Turns> = Mutex::new(Turns::NONE);

/// Whose bytes were moved, in this turn of the thread and in the last one.
#[derive(Debug)]
struct Turns {
    last: Talk,
    this: Talk,
    /// When this turn began.
    woke_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Nobody,
    /// One client, whose bytes were last moved then.
    One(u64, Instant),
    Several,
}

impl Turns {
    const NONE: Self = Self { last: Talk::Nobody, this: Talk::Nobody, woke_at: None };

    fn moved(&mut self, conversation: u64, now: impl FnOnce() -> Instant) {
        self.this = match self.this {
            Talk::One(other, _) if other != conversation => Talk::Several,
            Talk::Several => Talk::Several,
            Talk::Nobody | Talk::One(..) => Talk::One(conversation, now()),
        };
    }

    /// Ends this turn. If one client was alone in the last two, says until when to stay awake.
    fn end(&mut self) -> Option<Instant> {
        let Self { last, this, woke_at } = *self;
        *self = Self { last: this, ..Self::NONE };
        match (last, this, woke_at) {
            (Talk::One(before, _), Talk::One(now, moved_at), Some(woke_at)) if before == now => {
                let took = moved_at.saturating_duration_since(woke_at);
                Some(moved_at + LONGEST_PAUSE.min(took / PAUSE_PART))
            }
            _ => None,
        }
    }

    /// Whether the messages of several clients were there at once.
    fn are_crowded(&self) -> bool {
        self.last == Talk::Several || self.this == Talk::Several
    }
}

/// One client's session, told from others.
#[derive(Debug)]
pub(super) struct Conversation(u64);

impl Conversation {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that bytes were moved just now.
    pub(super) fn moved(&self) {
        turns().moved(self.0, Instant::now);
    }
}

/// To be called before the thread parks.
pub fn stay_awake() {
    let until = turns().end();
    if let Some(until) = until.filter(|_| *CAN_PAUSE) {
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// To be called when the thread has been woken.
pub fn woke_up() {
    turns().woke_at = Some(Instant::now());
}

/// Whether the messages of several clients were there at once, in this turn of the thread or in the last one.
pub(super) fn is_crowded() -> bool {
    turns().are_crowded()
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each turn: whether the thread stays awake after it.
    fn stays_awake<const N: usize>(turns: [&[u64]; N]) -> [bool; N] {
        let mut state = Turns::NONE;
        turns.map(|clients| {
            state.woke_at = Some(Instant::now());
            for &client in clients {
                state.moved(client, Instant::now);
            }
            state.end().is_some()
        })
    }

    #[test]
    fn a_client_that_is_alone_is_waited_for() {
        assert_eq!(stays_awake([&[1], &[1, 1], &[1]]), [false, true, true]);
    }

    #[test]
    fn the_pause_follows_the_last_bytes_and_the_time_that_they_took() {
        let woke_at = Instant::now();
        let after = |microseconds| woke_at + Duration::from_micros(microseconds);
        for (moved, until) in [(4, 5), (8, 10), (16, 20), (900, 904)] {
            let mut state = Turns::NONE;
            state.moved(1, || woke_at);
            state.end();
            state.woke_at = Some(woke_at);
            state.moved(1, || after(1));
            state.moved(1, || after(moved));
            assert_eq!(state.end(), Some(after(until)));
        }
    }

    #[test]
    fn several_clients_are_not_waited_for() {
        assert_eq!(stays_awake([&[1], &[1, 2], &[2], &[1], &[2]]), [false; 5]);
    }

    #[test]
    fn clients_at_once_are_a_crowd() {
        let mut state = Turns::NONE;
        let mut is_crowded_after = |clients: &[u64]| {
            for &client in clients {
                state.moved(client, Instant::now);
            }
            let is_crowded = state.are_crowded();
            state.end();
            is_crowded
        };
        assert!(!is_crowded_after(&[1, 1]));
        assert!(!is_crowded_after(&[2]), "one after the other");
        assert!(is_crowded_after(&[1, 2]));
        assert!(is_crowded_after(&[1]), "the turn before counts");
        assert!(!is_crowded_after(&[1]));
    }

    #[test]
    fn nobody_is_waited_for_when_nothing_was_moved() {
        assert_eq!(stays_awake([&[1], &[], &[], &[1]]), [false; 4]);
    }
}
