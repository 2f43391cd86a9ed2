//! One operation of a bridge: decided on, then waiting for its turn, then under way.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use super::operations::{Entry, MAX_UNDER_WAY, Operations, Outcome, Waiting};
use crate::permission::{Decided, Refusal, Wanted};

/// One operation, from when it is asked for to its end. Dropping it gives its turn back.
#[derive(Debug)]
pub struct Turn {
    operations: Operations,
    number: u64,
    wanted: Wanted,
    decided: Option<Decided>,
    /// How often the rules had changed then.
    changes: u64,
    since: Instant,
    /// When it was driven last.
    now: Instant,
    is_over: bool,
}

impl Turn {
    /// An operation that was just asked for.
    pub(super) const fn new(
        operations: Operations,
        number: u64,
        wanted: Wanted,
        decided: Option<Decided>,
        changes: u64,
        now: Instant,
    ) -> Self {
        Self { operations, number, wanted, decided, changes, since: now, now, is_over: false }
    }

    /// Time has passed.
    pub fn drive(&mut self, now: Instant) {
        self.now = now;
        if self.decided.is_some() {
            return;
        }
        let mut shared = self.operations.0.borrow_mut();
        let undecided = &mut shared.undecided;
        if let Some(at) = undecided.iter().position(|one| one.number == self.number) {
            let is_decided = undecided.get(at).is_some_and(|one| one.decided.is_some());
            if is_decided {
                self.decided = undecided.swap_remove(at).decided;
                self.changes = shared.permissions.changes();
            }
        }
    }

    /// Why it isn't done, if it was refused. The rules may have changed while it waited.
    pub fn refusal(&self) -> Option<Refusal> {
        match &self.decided {
            Some(Decided::Refused(refusal)) => Some(*refusal),
            decided @ (Some(_) | None) => {
                let shared = self.operations.0.borrow();
                let can_record = shared.can_record();
                let decided = decided.as_ref().map(|decided| (decided, self.changes));
                shared.permissions.refuse(&self.wanted, decided, can_record)
            }
        }
    }

    /// Whether it may begin, and isn't refused.
    pub fn has_come(&self) -> bool {
        if self.refusal().is_some() {
            return false;
        }
        let shared = self.operations.0.borrow();
        shared.turns.iter().take(MAX_UNDER_WAY).any(|waiting| waiting.number == self.number)
    }

    /// Ready when it may begin, or is refused: [`Self::drive`] has to be called then.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_come() || self.refusal().is_some() {
            return Poll::Ready(());
        }
        let mut shared = self.operations.0.borrow_mut();
        if let Some(one) = shared.undecided.iter_mut().find(|one| one.number == self.number) {
            if one.decided.is_some() {
                return Poll::Ready(());
            }
            one.waker = Some(context.waker().clone());
        }
        let own = shared.turns.iter_mut().find(|waiting| waiting.number == self.number);
        if let Some(waiting) = own {
            waiting.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Waits until it may begin.
    pub async fn come(&mut self, now: impl Fn() -> Instant) -> Result<(), Refusal> {
        loop {
            poll_fn(|context| self.poll(context)).await;
            self.drive(now());
            if let Some(refusal) = self.refusal() {
                return Err(refusal);
            }
            if self.has_come() {
                return Ok(());
            }
        }
    }

    /// The agent waits for the client, who may take long: others have the turn meanwhile.
    pub(crate) fn pause(&mut self) {
        self.operations.leave(self.number);
    }

    /// The agent can go on when its turn comes again.
    pub(crate) fn resume(&mut self) {
        let mut shared = self.operations.0.borrow_mut();
        if !shared.turns.iter().any(|waiting| waiting.number == self.number) {
            let (what, since) = (self.wanted.operations, self.since);
            shared.turns.push_back(Waiting { number: self.number, what, since, waker: None });
        }
    }

    /// It is over. `object` is the id that git gives to what was signed.
    pub fn finish(mut self, outcome: Outcome, object: Option<String>, now: Instant) {
        self.now = now;
        self.end(outcome, object);
    }

    fn end(&mut self, outcome: Outcome, object: Option<String>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let refusal = match (&self.decided, outcome) {
            (Some(Decided::Refused(refusal)), _) => Some(*refusal),
            (_, Outcome::Refused) => Some(self.refusal().unwrap_or(Refusal::NotLent)),
            (_, _) => None,
        };
        if let Some(refusal) = refusal {
            self.operations.log(&self.wanted, refusal, self.now);
        }
        let Some(recorder) = self.operations.recorder() else { return };
        let (decided, outcome) = match refusal.map(Decided::Refused) {
            Some(refused) => (Some(refused), Outcome::Refused),
            None => (self.decided.clone(), outcome),
        };
        recorder.record(&Entry {
            wanted: &self.wanted,
            decided: decided.as_ref(),
            outcome,
            object,
            took: self.now.saturating_duration_since(self.since),
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned, None);
        let was_asked = {
            let mut shared = self.operations.0.borrow_mut();
            let count = shared.undecided.len();
            shared.undecided.retain(|one| one.number != self.number);
            shared.permissions.withdraw(self.number);
            shared.undecided.len() < count
        };
        self.operations.leave(self.number);
        if was_asked {
            self.operations.questions_changed(&[]);
        }
    }
}
