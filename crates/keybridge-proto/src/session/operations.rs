//! The private-key operations of a bridge, each of which can raise a dialog on the host.
//!
//! Each is decided on first, which may take a person's word (`permission/`). A few of those that are allowed
//! are under way at a time, in the order in which they were allowed; the others wait. A key for which a
//! person has cancelled a dialog is refused for a while, and for longer each time that this goes on. So a
//! target can't keep a person busy with dialogs.
//!
//! All sessions of a bridge share them, on one thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::turn::Turn;
use crate::OperationSet;
use crate::gate::KeyGrip;
use crate::permission::{
    AnswerError, Decided, Decision, Permissions, PersonsWord, Question, Refusal, Rules, Wanted,
};

/// How many operations of a bridge are under way at most. Several keys of one message are asked for side by
/// side, and a person can't look at more dialogs.
pub(super) const MAX_UNDER_WAY: usize = 4;

/// How long a key is refused after a person has cancelled.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The same for one that is cancelled again and again.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// How many binds of the ssh lane are verified at once, and then in what time another one. Verifying takes up to
/// some milliseconds, while a target sends the same bind again for next to nothing.
const BIND_BURST: u32 = 512;
const BIND_INTERVAL: Duration = Duration::from_millis(50);

/// How often a refusal is logged at most.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The operations of a bridge.
#[derive(Debug, Clone, Default)]
pub struct Operations(pub(super) Rc<RefCell<Shared>>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) permissions: Permissions,
    /// Those that a person decides on, and those that were refused.
    pub(super) undecided: Vec<Undecided>,
    /// Those that are allowed. The first ones are under way.
    pub(super) turns: VecDeque<Waiting>,
    /// The number of the next one.
    next: u64,
    refusals: BTreeMap<KeyGrip, Refused>,
    /// When the next bind may be verified at the bounded rate; in the past if there is room for a burst.
    next_bind: Option<Instant>,
    /// When a refusal may be logged again.
    next_line: Option<Instant>,
    watcher: Option<Watcher>,
    recorder: Option<Recording>,
}

impl Shared {
    /// Whether what is done can be written down, where it is.
    pub(super) fn can_record(&self) -> bool {
        self.recorder.as_ref().is_none_or(|Recording(to)| to.is_ready())
    }
}

/// An operation that a person decides on, until its session looks at the decision.
#[derive(Debug)]
pub(super) struct Undecided {
    pub(super) number: u64,
    what: OperationSet,
    since: Instant,
    pub(super) decided: Option<Decided>,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    pub(super) what: OperationSet,
    pub(super) since: Instant,
    pub(super) waker: Option<Waker>,
}

/// An operation that isn't done yet, and may wait for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// What it is.
    pub what: OperationSet,
    /// When it was asked for.
    pub since: Instant,
    /// Whether a person is asked about it. If not, an agent has it, which may have a dialog open.
    pub is_asked: bool,
}

/// Writes down what is done with the keys.
pub trait Recorder {
    /// Whether more can be written down.
    fn is_ready(&self) -> bool;

    /// An operation is over.
    fn record(&self, entry: &Entry<'_>);
}

/// An operation that is over.
#[derive(Debug)]
pub struct Entry<'a> {
    /// What was wanted.
    pub wanted: &'a Wanted,
    /// Who decided. `None` if the client went before that.
    pub decided: Option<&'a Decided>,
    /// How it ended.
    pub outcome: Outcome,
    /// The id that git gives to the signed object.
    pub object: Option<String>,
    /// How long it took, with all the waiting.
    pub took: Duration,
}

/// Questions by their numbers, and what was decided on them.
pub type Decisions = [(u64, Decided)];

/// Is told whenever the questions have changed.
struct Watcher(Rc<dyn Fn(&Decisions)>);

struct Recording(Rc<dyn Recorder>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recording")
    }
}

/// A key that is refused, or was.
#[derive(Debug, Clone, Copy)]
struct Refused {
    until: Instant,
    pause: Duration,
}

/// How an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Succeeded,
    /// A person has cancelled it.
    Cancelled,
    /// It failed in another way.
    Failed,
    /// It was refused.
    Refused,
    /// The client was gone before its end.
    Abandoned,
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
        self.0.borrow().permissions.rules().uses
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.0.borrow().permissions.rules().clone()
    }

    /// Lends these from now on, also for clients that are connected.
    pub fn lend(&self, uses: OperationSet) {
        self.set_rules(Rules { uses, ..self.rules() });
    }

    /// Sets other rules, also for what waits.
    pub fn set_rules(&self, rules: Rules) {
        let decided = self.0.borrow_mut().permissions.set_rules(rules);
        self.apply(&decided);
        // An operation that waits for its turn looks at the rules when it is woken.
        let mut shared = self.0.borrow_mut();
        let wakers: Vec<Waker> =
            shared.turns.iter_mut().filter_map(|waiting| waiting.waker.take()).collect();
        drop(shared);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets whether there is a way to ask a person. Without one, questions that wait are refused.
    pub fn set_can_ask(&self, can_ask: bool) {
        let decided = self.0.borrow_mut().permissions.set_can_ask(can_ask);
        self.apply(&decided);
    }

    /// Has `watcher` called whenever the questions have changed, with what was decided on them. One that
    /// is gone without that has lost its client.
    pub fn watch_questions(&self, watcher: Rc<dyn Fn(&Decisions)>) {
        self.0.borrow_mut().watcher = Some(Watcher(watcher));
    }

    /// Has every operation written down.
    pub fn record_with(&self, recorder: Rc<dyn Recorder>) {
        self.0.borrow_mut().recorder = Some(Recording(recorder));
    }

    /// The questions that wait for a person, the oldest first.
    pub fn questions(&self) -> Vec<Question> {
        self.0.borrow().permissions.questions().cloned().collect()
    }

    /// A person answers a question, by this way of asking.
    pub fn answer(
        &self,
        id: u64,
        word: PersonsWord,
        way: &str,
        now: Instant,
    ) -> Result<(), AnswerError> {
        let decided = self.0.borrow_mut().permissions.answer(id, word, way, now)?;
        self.apply(&decided);
        Ok(())
    }

    /// When [`Self::expire`] has to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.borrow().permissions.deadline()
    }

    /// Time has passed: questions end without an answer.
    pub fn expire(&self, now: Instant) {
        let decided = self.0.borrow_mut().permissions.expire(now);
        self.apply(&decided);
    }

    /// The operations that aren't done yet, but for those that only wait for others.
    pub fn pending(&self) -> Vec<Pending> {
        let shared = self.0.borrow();
        let asked = shared.undecided.iter().filter(|one| one.decided.is_none());
        let asked = asked.map(|one| Pending { what: one.what, since: one.since, is_asked: true });
        let under_way = shared.turns.iter().take(MAX_UNDER_WAY);
        let under_way =
            under_way.map(|turn| Pending { what: turn.what, since: turn.since, is_asked: false });
        asked.chain(under_way).collect()
    }

    /// Whether a dialog may be open for an operation, also for one that was given up.
    pub fn may_ask(&self) -> bool {
        !self.0.borrow().turns.is_empty()
    }

    /// Asks for an operation.
    pub fn queue(&self, wanted: Wanted, now: Instant) -> Turn {
        let mut shared = self.0.borrow_mut();
        let number = shared.next;
        shared.next += 1;
        let (what, since) = (wanted.operations, now);
        let can_record = shared.can_record();
        let decided = match shared.permissions.request(number, &wanted, can_record, now) {
            Decision::Now(decided) => Some(decided),
            Decision::Asked => {
                let waiting = Undecided { number, what, since, decided: None, waker: None };
                shared.undecided.push(waiting);
                None
            }
        };
        if decided.as_ref().is_some_and(|decided| !matches!(decided, Decided::Refused(_))) {
            shared.turns.push_back(Waiting { number, what, since, waker: None });
        }
        let (is_asked, changes) = (decided.is_none(), shared.permissions.changes());
        drop(shared);
        if is_asked {
            self.questions_changed(&[]);
        }
        Turn::new(self.clone(), number, wanted, decided, changes, now)
    }

    /// Notes a use of a key that the gate has refused, since it isn't lent.
    pub(crate) fn note_refused(&self, wanted: &Wanted) {
        let Some(recorder) = self.recorder() else { return };
        recorder.record(&Entry {
            wanted,
            decided: Some(&Decided::Refused(Refusal::NotLent)),
            outcome: Outcome::Refused,
            object: None,
            took: Duration::ZERO,
        });
    }

    pub(super) fn recorder(&self) -> Option<Rc<dyn Recorder>> {
        self.0.borrow().recorder.as_ref().map(|Recording(recorder)| Rc::clone(recorder))
    }

    /// Tells operations what was decided on them.
    fn apply(&self, decided: &Decisions) {
        if decided.is_empty() {
            return;
        }
        let mut wakers = Vec::new();
        let mut shared = self.0.borrow_mut();
        for (number, decided) in decided {
            let number = *number;
            let Some(at) = shared.undecided.iter_mut().position(|one| one.number == number) else {
                continue;
            };
            let Some(one) = shared.undecided.get_mut(at) else { continue };
            let Undecided { what, since, .. } = *one;
            one.decided = Some(decided.clone());
            wakers.extend(one.waker.take());
            if !matches!(decided, Decided::Refused(_)) {
                shared.turns.push_back(Waiting { number, what, since, waker: None });
            }
        }
        drop(shared);
        wakers.into_iter().for_each(Waker::wake);
        self.questions_changed(decided);
    }

    pub(super) fn questions_changed(&self, decided: &Decisions) {
        let watcher = self.0.borrow().watcher.as_ref().map(|Watcher(watcher)| Rc::clone(watcher));
        if let Some(watcher) = watcher {
            watcher(decided);
        }
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
                let refusal = Refused::after(refusals.get(&key).copied(), now);
                refusals.insert(key, refusal);
            }
            Outcome::Failed | Outcome::Refused | Outcome::Abandoned => {}
        }
    }

    /// Tells the person in the log why something isn't done, so often that a target can't fill it.
    pub(super) fn log(&self, wanted: &Wanted, refusal: Refusal, now: Instant) {
        let next = &mut self.0.borrow_mut().next_line;
        if next.is_none_or(|next| next <= now) {
            *next = Some(now + LINE_INTERVAL);
            tracing::info!("refused: {wanted}: {refusal}");
        }
    }

    /// Gives a turn back.
    pub(super) fn leave(&self, number: u64) {
        let mut shared = self.0.borrow_mut();
        shared.turns.retain(|waiting| waiting.number != number);
        let last = shared.turns.get_mut(MAX_UNDER_WAY - 1).and_then(|next| next.waker.take());
        drop(shared);
        if let Some(waker) = last {
            waker.wake();
        }
    }
}

impl Refused {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::{KeyName, Subject};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(first: char) -> KeyGrip {
        KeyGrip::parse(first.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn operations_take_turns_in_the_order_in_which_they_came() {
        let operations = Operations::default();
        let wanted = || Wanted {
            operations: [crate::Operation::Sign].into_iter().collect(),
            key: KeyName::Grip(key('A')),
            subject: Subject::Hash,
        };
        let now = Instant::now();
        let mut turns: Vec<Turn> = (0..7).map(|_| operations.queue(wanted(), now)).collect();
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
