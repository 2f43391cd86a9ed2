//! The thread stays awake for a moment after it has moved bytes of one client alone.
//!
//! If it sleeps at once, the kernel is more likely to spread client, bridge and agent over processors that
//! each have to be woken for every message: docs/speed.md has the figures. While the messages of several
//! clients interleave, others can use the time, and there is no pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long the thread stays awake after it has written, work included. Where there is only one processor,
/// nobody else could run meanwhile.
static PAUSE: LazyLock<Duration> = LazyLock::new(|| match available_parallelism() {
    Ok(processors) if processors.get() > 1 => Duration::from_nanos(1600),
    Ok(_) | Err(_) => Duration::ZERO,
});

/// There is one such thread.
static TURNS: Mutex<Turns> = Mutex::new(Turns::NONE);

/// Whose bytes were moved, in this turn of the thread and in the last one.
#[derive(Debug)]
struct Turns {
    last: Option<u64>,
    this: Talk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Nobody,
    /// One client, whose bytes were last moved then.
    One(u64, Instant),
    Several,
}

impl Turns {
    const NONE: Self = Self { last: None, this: Talk::Nobody };

    fn moved(&mut self, conversation: u64, now: Instant) {
        self.this = match self.this {
            Talk::One(other, _) if other != conversation => Talk::Several,
            Talk::Several => Talk::Several,
            Talk::Nobody | Talk::One(..) => Talk::One(conversation, now),
        };
    }

    /// Begins the next turn. If one client was alone in the last two, says when its bytes were last moved.
    fn end(&mut self) -> Option<Instant> {
        let alone = match self.this {
            Talk::One(conversation, moved_at) => Some((conversation, moved_at)),
            Talk::Nobody | Talk::Several => None,
        };
        let last = self.last;
        *self = Self { last: alone.map(|(conversation, _)| conversation), ..Self::NONE };
        alone.filter(|(conversation, _)| last == Some(*conversation)).map(|(_, moved_at)| moved_at)
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
        turns().moved(self.0, Instant::now());
    }
}

/// To be called before the thread parks.
pub fn stay_awake() {
    let moved_at = turns().end();
    if let Some(moved_at) = moved_at {
        let pause = *PAUSE;
        while moved_at.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
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
            for &client in clients {
                state.moved(client, Instant::now());
            }
            state.end().is_some()
        })
    }

    #[test]
    fn a_client_that_is_alone_is_waited_for() {
        assert_eq!(stays_awake([&[1], &[1, 1], &[1]]), [false, true, true]);
    }

    #[test]
    fn the_last_bytes_count() {
        let mut state = Turns::NONE;
        let first = Instant::now();
        let second = first + Duration::from_micros(1);
        state.moved(1, first);
        state.end();
        state.moved(1, first);
        state.moved(1, second);
        assert_eq!(state.end(), Some(second));
    }

    #[test]
    fn several_clients_are_not_waited_for() {
        assert_eq!(stays_awake([&[1], &[1, 2], &[2], &[1], &[2]]), [false; 5]);
    }

    #[test]
    fn nobody_is_waited_for_when_nothing_was_moved() {
        assert_eq!(stays_awake([&[1], &[], &[], &[1]]), [false; 4]);
    }
}
