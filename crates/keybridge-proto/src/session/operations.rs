//! The private-key operations of a bridge, each of which can raise a dialog on the host.
//!
//! A few are under way at a time, in the order in which they came; the others wait. A key for which a
//! person has cancelled a dialog is refused for a while, and for longer each time that this goes on. So a
//! target can't keep a person busy with dialogs.
//!
//! All sessions of a bridge share them, on one thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::OperationSet;
use crate::gate::KeyGrip;

/// How many operations of a bridge are under way at most. Several keys of one message are asked for side by
/// side, and a person can't look at more dialogs.
const MAX_UNDER_WAY: usize = 4;

/// How long a key is refused after a person has cancelled.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The same for one that is cancelled again and again.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// How many binds of the ssh lane are verified at once, and then in what time another one. Verifying takes up to
/// some milliseconds, while a target sends the same bind again for next to nothing.
const BIND_BURST: u32 = 512;
const BIND_INTERVAL: Duration = Duration::from_millis(50);

/// The operations of a bridge.
#[derive(Debug, Clone, Default)]
pub struct Operations(Rc<RefCell<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    /// What is lent.
    uses: OperationSet,
    /// The first ones are under way.
    turns: VecDeque<Waiting>,
    /// The number of the next one.
    next: u64,
    refusals: BTreeMap<KeyGrip, Refusal>,
    /// When the next bind may be verified at the bounded rate; in the past if there is room for a burst.
    next_bind: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

/// A key that is refused, or was.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    until: Instant,
    pause: Duration,
}

/// The place of one operation, from when it is asked for to its end.
#[derive(Debug)]
pub struct Turn {
    operations: Operations,
    number: u64,
}

/// How an agent has answered an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Succeeded,
    /// A person has cancelled it.
    Cancelled,
    /// It failed in another way.
    Failed,
}

/// Whether they are those of the same bridge.
impl PartialEq for Operations {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Operations {}

impl Operations {
    /// What a target may have done.
    pub fn uses(&self) -> OperationSet {
        self.0.borrow().uses
    }

    /// Lends these from now on, also for clients that are connected.
    pub fn lend(&self, uses: OperationSet) {
        self.0.borrow_mut().uses = uses;
    }

    /// Whether a dialog may be open for an operation, also for one that was given up.
    pub fn may_ask(&self) -> bool {
        !self.0.borrow().turns.is_empty()
    }

    /// Asks for a turn. Dropping it gives it back.
    pub(crate) fn queue(&self) -> Turn {
        let mut shared = self.0.borrow_mut();
        let number = shared.next;
        shared.next += 1;
        shared.turns.push_back(Waiting { number, waker: None });
        Turn { operations: self.clone(), number }
    }

    /// Waits for a turn. Dropping it gives it back.
    pub async fn turn(&self) -> Turn {
        let turn = self.queue();
        poll_fn(|context| turn.poll(context)).await;
        turn
    }

    /// Whether a person has cancelled the use of a key lately.
    pub fn refuse(&self, key: KeyGrip, now: Instant) -> bool {
        self.0.borrow().refusals.get(&key).is_some_and(|refusal| now < refusal.until)
    }

    /// Whether another bind may be verified, which counts as one.
    pub(crate) fn may_verify_bind(&self, now: Instant) -> bool {
        let next = &mut self.0.borrow_mut().next_bind;
        let earliest = now.checked_sub(BIND_INTERVAL * (BIND_BURST - 1)).unwrap_or(now);
        let slot = next.unwrap_or(earliest).max(earliest);
        let has_room = slot <= now;
        if has_room {
            *next = Some(slot + BIND_INTERVAL);
        }
        has_room
    }

    /// The agent has answered an operation with a key.
    pub fn note(&self, key: KeyGrip, outcome: Outcome, now: Instant) {
        let refusals = &mut self.0.borrow_mut().refusals;
        match outcome {
            Outcome::Succeeded => drop(refusals.remove(&key)),
            Outcome::Cancelled => {
                let refusal = Refusal::after(refusals.get(&key).copied(), now);
                refusals.insert(key, refusal);
            }
            Outcome::Failed => {}
        }
    }
}

impl Refusal {
    fn after(last: Option<Self>, now: Instant) -> Self {
        let pause = match last {
            // One of several dialogs that were open together.
            Some(last) if now < last.until => last.pause,
            Some(last) if now < last.until + LONGEST_PAUSE => (last.pause * 2).min(LONGEST_PAUSE),
            Some(_) | None => FIRST_PAUSE,
        };
        Self { until: now + pause, pause }
    }
}

impl Turn {
    /// Whether the operation may begin.
    pub(crate) fn has_come(&self) -> bool {
        let shared = self.operations.0.borrow();
        shared.turns.iter().take(MAX_UNDER_WAY).any(|waiting| waiting.number == self.number)
    }

    /// Ready when it may begin.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_come() {
            return Poll::Ready(());
        }
        let mut shared = self.operations.0.borrow_mut();
        let own = shared.turns.iter_mut().find(|waiting| waiting.number == self.number);
        if let Some(waiting) = own {
            waiting.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut shared = self.operations.0.borrow_mut();
        shared.turns.retain(|waiting| waiting.number != self.number);
        let last = shared.turns.get_mut(MAX_UNDER_WAY - 1).and_then(|next| next.waker.take());
        drop(shared);
        if let Some(waker) = last {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(first: char) -> KeyGrip {
        KeyGrip::parse(first.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn operations_take_turns_in_the_order_in_which_they_came() {
        let operations = Operations::default();
        let mut turns: Vec<Turn> = (0..7).map(|_| operations.queue()).collect();
        let have_come = |turns: &[Turn]| turns.iter().filter(|turn| turn.has_come()).count();
        assert_eq!(have_come(&turns), 4);
        assert!(!turns[4].has_come());
        // One that waits leaves, and one that is under way.
        drop(turns.remove(5));
        assert_eq!(have_come(&turns), 4);
        drop(turns.remove(1));
        assert!(turns[3].has_come() && !turns[4].has_come());
        assert!(operations.may_ask());
        turns.clear();
        assert!(!operations.may_ask());
    }

    #[test]
    fn a_key_is_refused_for_longer_each_time_that_a_person_cancels() {
        let (operations, start) = (Operations::default(), Instant::now());
        let mut now = start;
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            // Both dialogs that were open are cancelled.
            operations.note(key('A'), Outcome::Cancelled, now);
            operations.note(key('A'), Outcome::Cancelled, now);
            assert!(operations.refuse(key('A'), now + (pause * SECOND).saturating_sub(SECOND / 2)));
            now += pause * SECOND;
            assert!(!operations.refuse(key('A'), now), "{pause}");
            assert!(!operations.refuse(key('B'), start));
        }
    }

    #[test]
    fn a_success_or_a_rest_ends_the_doubling() {
        let (operations, now) = (Operations::default(), Instant::now());
        let cancel = |at| operations.note(key('A'), Outcome::Cancelled, at);
        cancel(now);
        cancel(now + 6 * SECOND);
        operations.note(key('A'), Outcome::Failed, now + 7 * SECOND);
        assert!(operations.refuse(key('A'), now + 15 * SECOND));
        operations.note(key('A'), Outcome::Succeeded, now + 17 * SECOND);
        cancel(now + 18 * SECOND);
        assert!(!operations.refuse(key('A'), now + 23 * SECOND));
        cancel(now + 600 * SECOND);
        assert!(!operations.refuse(key('A'), now + 605 * SECOND));
    }
}
