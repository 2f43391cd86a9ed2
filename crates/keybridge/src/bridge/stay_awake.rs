//! The thread stays awake for a moment after it has moved bytes of one client alone.
//!
//! If it sleeps at once, the kernel is more likely to spread client, bridge and agent over processors that
//! each have to be woken for every message: docs/speed.md has the figures. While the messages of several
//! clients interleave, others can use the time, and there is no pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long the thread stays awake. It costs that much of a processor for each message. Where there is only
/// one, nobody else could run meanwhile.
static PAUSE: LazyLock<Duration> = LazyLock::new(|| match available_parallelism() {
    Ok(processors) if processors.get() > 1 => Duration::from_micros(2),
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
    One(u64),
    Several,
}

impl Turns {
    const NONE: Self = Self { last: None, this: Talk::Nobody };

    fn moved(&mut self, conversation: u64) {
        self.this = match self.this {
            Talk::Nobody => Talk::One(conversation),
            Talk::One(other) if other == conversation => self.this,
            Talk::One(_) | Talk::Several => Talk::Several,
        };
    }

    /// Begins the next turn. Says whether one client was alone in the last two.
    fn end(&mut self) -> bool {
        let alone = match self.this {
            Talk::One(conversation) => Some(conversation),
            Talk::Nobody | Talk::Several => None,
        };
        let goes_on = alone.is_some() && alone == self.last;
        *self = Self { last: alone, this: Talk::Nobody };
        goes_on
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

    /// Notes that bytes were moved.
    pub(super) fn moved(&self) {
        TURNS.lock().unwrap_or_else(PoisonError::into_inner).moved(self.0);
    }
}

/// To be called before the thread parks.
pub fn stay_awake() {
    let goes_on = TURNS.lock().unwrap_or_else(PoisonError::into_inner).end();
    if goes_on {
        let (start, pause) = (Instant::now(), *PAUSE);
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each turn: whether the thread stays awake after it.
    fn stays_awake<const N: usize>(turns: [&[u64]; N]) -> [bool; N] {
        let mut state = Turns::NONE;
        turns.map(|clients| {
            for &client in clients {
                state.moved(client);
            }
            state.end()
        })
    }

    #[test]
    fn a_client_that_is_alone_is_waited_for() {
        assert_eq!(stays_awake([&[1], &[1, 1], &[1]]), [false, true, true]);
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
