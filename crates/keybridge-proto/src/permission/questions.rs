//! Decides on operations, and has a person decide where the rules say so.
//!
//! ```text
//!  request ─┬─ refused by a rule, or by a no of the last minute ──────────────▶ refused
//!           ├─ lent without a question, or by a yes that still counts ────────▶ allowed
//!           ├─ nobody to ask, silenced, three wait ───────────────────────────▶ refused
//!           └─ asked ─┬─ yes, once ───────────────────────────────────────────▶ allowed
//!                     ├─ yes, for a while ── also those that wait for the same ▶ allowed
//!                     ├─ no ──────────────── also those that wait for the same ▶ refused
//!                     ├─ a minute without an answer; two in a row silence ────▶ refused
//!                     ├─ other rules refuse it, or nobody is left to ask ─────▶ refused
//!                     └─ its client goes: it keeps its place for its minute, and isn't shown
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::rules::Rules;
use super::wanted::{Decided, KeyName, Refusal, Subject, Wanted};
use crate::ssh::Fingerprint;

/// How long a question waits: gpg and git wait as long, and a person who is there answers sooner.
const TIME: Duration = Duration::from_mins(1);

/// How long a yes counts that is said for a while.
const WHILE: Duration = Duration::from_mins(15);

/// How long a no counts: long enough for a program's second try, short enough to change one's mind.
const NO: Duration = Duration::from_mins(1);

/// How many questions wait at most. A person reads one at a time.
const MAX_WAITING: usize = 3;

/// What a question without an answer counts, and one whose client goes before: a person may stop git, but a
/// target could go each time just before the minute is over.
const UNANSWERED: u32 = 3;
const WITHDRAWN: u32 = 1;

/// At how much the target is silenced: after two questions without an answer. For how long, and for how long at
/// most, if nobody answers between one silence and the next.
const MAX_UNANSWERED: u32 = 2 * UNANSWERED;
const SILENCE: Duration = Duration::from_mins(5);
const LONGEST_SILENCE: Duration = Duration::from_hours(1);

/// How long a use of a key is remembered: the longest time of a limit. How many uses are.
const REMEMBERED_USE: Duration = Duration::from_hours(24);
const MAX_USES: usize = 10_000;

/// How many ended questions are remembered, to tell one who answers late.
const REMEMBERED: usize = 16;

/// What a person says to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PersonsWord {
    /// Yes, to this one.
    Once,
    /// Yes, to this operation with this key for a quarter of an hour.
    ForAWhile,
    /// No.
    No,
}

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskedBy {
    /// The user has said so for this operation.
    Rule,
    /// The key was used as often as it may be without a question.
    Limit,
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub id: u64,
    /// What is wanted.
    pub wanted: Wanted,
    /// Why it is asked.
    pub asked_by: AskedBy,
    /// When it ends without an answer.
    pub until: Instant,
}

/// An answer that doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerError {
    /// Somebody was first.
    #[error("it was answered already")]
    Answered,
    /// The minute is over, or the client is gone.
    #[error("it is too late: nobody waits for the answer any more")]
    TooLate,
}

/// What is to be done with an operation that was just asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It was decided.
    Now(Decided),
    /// A person decides.
    Asked,
}

/// Decides for one bridge.
#[derive(Debug, Default)]
pub(crate) struct Permissions {
    rules: Rules,
    /// Whether there is a way to ask a person.
    can_ask: bool,
    /// How often the rules have changed.
    changes: u64,
    /// When each key was used, whether there was a limit or not.
    used: BTreeMap<KeyName, VecDeque<Instant>>,
    /// What a person has said that still counts.
    words: BTreeMap<Topic, Word>,
    waiting: Vec<Waiting>,
    /// What the questions count that went unanswered since the last answer.
    unanswered: u32,
    /// How long the last silence was, and when it ends.
    silence: Option<(Duration, Instant)>,
    /// The last ones, and whether a person has answered them.
    ended: VecDeque<(u64, bool)>,
}

/// A yes or a no that counts for a while.
#[derive(Debug, Clone, Copy)]
struct Word {
    is_yes: bool,
    until: Instant,
}

#[derive(Debug)]
struct Waiting {
    question: Question,
    /// Its client is gone: it isn't shown, and still takes a place.
    is_withdrawn: bool,
}

impl AskedBy {
    /// Why it is refused where nobody can be asked.
    const fn without_anybody(self) -> Refusal {
        match self {
            Self::Rule => Refusal::Nobody,
            Self::Limit => Refusal::Limit,
        }
    }
}

/// What a yes or a no is for: an operation and its key, and a yes to a login also for its user and host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Topic {
    operations: u8,
    key: KeyName,
    login: Option<(String, Option<Fingerprint>)>,
}

impl Topic {
    fn of(wanted: &Wanted) -> Self {
        let login = match &wanted.subject {
            Subject::Login { user, host } => Some((user.clone(), *host)),
            Subject::Commit { .. }
            | Subject::Tag { .. }
            | Subject::Hash
            | Subject::SessionKey
            | Subject::Message { .. }
            | Subject::Data => None,
        };
        Self { login, ..Self::of_no(wanted) }
    }

    fn of_no(wanted: &Wanted) -> Self {
        Self { operations: wanted.operations.bits(), key: wanted.key, login: None }
    }
}

impl Permissions {
    pub(crate) const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Sets other rules. Yeses that were said under the old ones don't count any more. Gives back the
    /// questions that the new rules decide.
    #[must_use]
    pub(crate) fn set_rules(&mut self, rules: Rules) -> Vec<(u64, Decided)> {
        if self.rules == rules {
            return Vec::new();
        }
        self.changes += 1;
        self.rules = rules;
        self.words.retain(|_, word| !word.is_yes);
        self.end(|question, rules| rules.refuse(&question.wanted).map(Decided::Refused), false)
    }

    /// Sets whether there is a way to ask a person. Gives back the questions that end, since nobody can
    /// answer them any more.
    #[must_use]
    pub(crate) fn set_can_ask(&mut self, can_ask: bool) -> Vec<(u64, Decided)> {
        self.can_ask = can_ask;
        if can_ask {
            return Vec::new();
        }
        self.end(|question, _| Some(Decided::Refused(question.asked_by.without_anybody())), false)
    }

    /// How often the rules have changed, to tell what was decided under others.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Why the rules refuse an operation, if they do. It may be decided already, when they had changed so often.
    pub(crate) fn refuse(
        &self,
        wanted: &Wanted,
        decided: Option<(&Decided, u64)>,
        can_record: bool,
    ) -> Option<Refusal> {
        let is_unasked = match decided {
            Some((Decided::Settings, changes)) => {
                let has_other_limit = self.rules.limit.is_some() && changes != self.changes;
                self.rules.asks_for(wanted) || has_other_limit
            }
            // Other rules have ended all yeses.
            Some((Decided::EarlierYes, changes)) => {
                self.rules.asks_for(wanted) && changes != self.changes
            }
            Some((Decided::Person(_) | Decided::Refused(_), _)) | None => false,
        };
        let is_unrecorded = self.rules.needs_record && !can_record;
        self.rules
            .refuse(wanted)
            .or_else(|| is_unrecorded.then_some(Refusal::Unrecorded))
            .or_else(|| is_unasked.then_some(Refusal::Changed))
    }

    /// Decides on an operation, or begins to ask.
    pub(crate) fn request(
        &mut self,
        id: u64,
        wanted: &Wanted,
        can_record: bool,
        now: Instant,
    ) -> Decision {
        match self.decide(wanted, can_record, now) {
            Ok(Ok(decided)) => {
                self.count(wanted.key, now);
                Decision::Now(decided)
            }
            Ok(Err(asked_by)) => {
                let question = Question { id, wanted: wanted.clone(), asked_by, until: now + TIME };
                self.waiting.push(Waiting { question, is_withdrawn: false });
                Decision::Asked
            }
            Err(refusal) => Decision::Now(Decided::Refused(refusal)),
        }
    }

    /// Allows it, asks, or refuses.
    fn decide(
        &mut self,
        wanted: &Wanted,
        can_record: bool,
        now: Instant,
    ) -> Result<Result<Decided, AskedBy>, Refusal> {
        if let Some(refusal) = self.refuse(wanted, None, can_record) {
            return Err(refusal);
        }
        let word = |topic| self.words.get(&topic).filter(|word| now < word.until);
        if word(Topic::of_no(wanted)).is_some_and(|word| !word.is_yes) {
            return Err(Refusal::EarlierNo);
        }
        if word(Topic::of(wanted)).is_some_and(|word| word.is_yes) {
            return Ok(Ok(Decided::EarlierYes));
        }
        let asked_by = match (self.rules.asks_for(wanted), self.is_used_up(wanted.key, now)) {
            (true, _) => AskedBy::Rule,
            (false, true) => AskedBy::Limit,
            (false, false) => return Ok(Ok(Decided::Settings)),
        };
        if !self.can_ask {
            return Err(asked_by.without_anybody());
        }
        self.forget_old(now);
        if self.silence.is_some_and(|(_, until)| now < until) {
            Err(Refusal::Silenced)
        } else if self.waiting.len() >= MAX_WAITING {
            Err(Refusal::TooMany)
        } else {
            Ok(Err(asked_by))
        }
    }

    fn is_used_up(&self, key: KeyName, now: Instant) -> bool {
        let Some(limit) = self.rules.limit else { return false };
        let Some(used) = self.used.get(&key) else { return false };
        let counts = |at: &&Instant| now.duration_since(**at) < limit.time();
        let most = usize::try_from(limit.count).unwrap_or(usize::MAX);
        used.iter().rev().take_while(counts).take(most).count() >= most
    }

    /// Counts a use of a key.
    fn count(&mut self, key: KeyName, now: Instant) {
        let used = self.used.entry(key).or_default();
        while used.front().is_some_and(|at| now.duration_since(*at) >= REMEMBERED_USE)
            || used.len() >= MAX_USES
        {
            used.pop_front();
        }
        used.push_back(now);
    }

    /// The questions that are shown, the oldest first.
    pub(crate) fn questions(&self) -> impl Iterator<Item = &Question> {
        self.waiting.iter().filter(|one| !one.is_withdrawn).map(|one| &one.question)
    }

    /// A person answers. Gives back what that decides, which may be more than one question.
    pub(crate) fn answer(
        &mut self,
        id: u64,
        word: PersonsWord,
        way: &str,
        now: Instant,
    ) -> Result<Vec<(u64, Decided)>, AnswerError> {
        let Some(question) = self.questions().find(|question| question.id == id) else {
            let was_answered = self.ended.iter().any(|ended| *ended == (id, true));
            return Err(if was_answered { AnswerError::Answered } else { AnswerError::TooLate });
        };
        if now >= question.until {
            return Err(AnswerError::TooLate);
        }
        let (about, about_no) = (Topic::of(&question.wanted), Topic::of_no(&question.wanted));
        (self.unanswered, self.silence) = (0, None);
        self.words.retain(|_, word| now < word.until);
        match word {
            PersonsWord::Once => {}
            PersonsWord::ForAWhile => {
                self.words.insert(about.clone(), Word { is_yes: true, until: now + WHILE });
            }
            PersonsWord::No => {
                // Also to what was allowed for a while.
                let is_about = |topic: &Topic| {
                    (topic.operations, topic.key) == (about_no.operations, about_no.key)
                };
                self.words.retain(|topic, _| !is_about(topic));
                self.words.insert(about_no.clone(), Word { is_yes: false, until: now + NO });
            }
        }
        let way = way.to_owned();
        let decided = self.end(
            |other, _| match word {
                PersonsWord::Once | PersonsWord::ForAWhile if other.id == id => {
                    Some(Decided::Person(way.clone()))
                }
                PersonsWord::No if other.id == id => Some(Decided::Refused(Refusal::No)),
                PersonsWord::ForAWhile if Topic::of(&other.wanted) == about => {
                    Some(Decided::EarlierYes)
                }
                PersonsWord::No if Topic::of_no(&other.wanted) == about_no => {
                    Some(Decided::Refused(Refusal::EarlierNo))
                }
                PersonsWord::Once | PersonsWord::ForAWhile | PersonsWord::No => None,
            },
            true,
        );
        for (_, decided) in &decided {
            if !matches!(decided, Decided::Refused(_)) {
                self.count(about.key, now);
            }
        }
        Ok(decided)
    }

    /// The client of an operation is gone.
    pub(crate) fn withdraw(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.iter_mut().find(|one| one.question.id == id) {
            waiting.is_withdrawn = true;
            self.remember(id, false);
        }
    }

    /// When [`Self::expire`] has to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|one| one.question.until).min()
    }

    /// Time has passed. Gives back the questions that nobody has answered.
    #[must_use]
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<(u64, Decided)> {
        self.forget_old(now);
        let decided = self.end(
            |question, _| (question.until <= now).then_some(Decided::Refused(Refusal::Unanswered)),
            false,
        );
        for _ in &decided {
            self.unanswered(UNANSWERED, now);
        }
        decided
    }

    fn unanswered(&mut self, counts: u32, now: Instant) {
        self.unanswered += counts;
        if self.unanswered >= MAX_UNANSWERED {
            self.unanswered = 0;
            let last = self.silence.map(|(last, _)| (last * 2).min(LONGEST_SILENCE));
            let silence = last.unwrap_or(SILENCE);
            self.silence = Some((silence, now + silence));
        }
    }

    /// Forgets questions whose clients are gone, and whose minute is over.
    fn forget_old(&mut self, now: Instant) {
        let count = self.waiting.len();
        self.waiting.retain(|one| !one.is_withdrawn || now < one.question.until);
        for _ in self.waiting.len()..count {
            self.unanswered(WITHDRAWN, now);
        }
    }

    /// Ends the questions for which there is a decision.
    fn end(
        &mut self,
        decide: impl Fn(&Question, &Rules) -> Option<Decided>,
        is_answer: bool,
    ) -> Vec<(u64, Decided)> {
        let rules = &self.rules;
        let decided: Vec<(u64, Decided)> = self
            .questions()
            .filter_map(|question| Some((question.id, decide(question, rules)?)))
            .collect();
        for (id, _) in &decided {
            self.waiting.retain(|one| one.question.id != *id);
            self.remember(*id, is_answer);
        }
        decided
    }

    fn remember(&mut self, id: u64, was_answered: bool) {
        self.ended.push_back((id, was_answered));
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}
