//! Whatever a target asks for, and whatever a person and the settings say meanwhile: nothing begins that the
//! settings in force don't allow.
//!
//! The judge here shares nothing with the code that decides. It writes down all that happens, and looks for
//! the reasons when an operation begins.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::gate::KeyGrip;
use keybridge_proto::permission::{
    Decided, KeyName, Limit, LoginRule, Person, PersonsWord, Rules, Subject, Wanted,
};
use keybridge_proto::session::{Entry, Operations, Outcome, Recorder, Turn};
use keybridge_proto::ssh::Fingerprint;
use keybridge_proto::{Operation, OperationSet};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const MINUTE: Duration = Duration::from_mins(1);
const EMAILS: [&str; 5] = [
    "ada@example.org",
    "Ada@EXAMPLE.org",
    "ada@example.org.evil",
    // The sign of Kelvin, which becomes a k in lower case.
    "\u{212a}im@example.org",
    "",
];
const USERS: [&str; 3] = ["git", "gitty", "root"];

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    Request(Wanted),
    /// An answer to one of the questions that are shown, or of those that were.
    Answer(usize, PersonsWord),
    LateAnswer(u64, PersonsWord),
    Time(u64),
    Settings(Rules),
    SomebodyIsThere(bool),
    CanRecord(bool),
    /// An operation ends, or its client goes.
    End(usize),
    Go(usize),
}

/// An operation that was asked for.
struct Asked {
    wanted: Wanted,
    turn: Turn,
    since: Instant,
    /// The settings since then, by their number.
    settings: usize,
    question: Option<u64>,
    /// How many answers there were.
    said: usize,
    /// How many operations were allowed until then, if it was allowed at once.
    allowed: Option<usize>,
    has_begun: bool,
}

/// An answer that was taken.
struct Said {
    question: u64,
    topic: Topic,
    word: PersonsWord,
    at: Instant,
    settings: usize,
}

type Topic = (Vec<Operation>, KeyName);

/// All that has happened.
struct Judge {
    /// Each with how many operations were allowed before its limit came into force.
    settings: Vec<(Rules, usize)>,
    said: Vec<Said>,
    /// What was allowed: the key, and when.
    allowed: Vec<(KeyName, Instant)>,
}

fn topic(wanted: &Wanted) -> Topic {
    (wanted.operations.iter().collect(), wanted.key)
}

/// Whether a text fits a pattern with one star at most.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            text.len() >= before.len() + after.len()
                && text.starts_with(before)
                && text.ends_with(after)
        }
    }
}

/// Whether settings lend an operation, asked for or not.
fn is_lent(rules: &Rules, wanted: &Wanted) -> bool {
    let operations: Vec<Operation> = wanted.operations.iter().collect();
    let all_are_lent = operations.iter().all(|one| rules.uses.iter().any(|lent| lent == *one));
    let email = match &wanted.subject {
        Subject::Commit { committer, .. } => Some(&committer.email),
        Subject::Tag { tagger, .. } => Some(&tagger.email),
        _ => None,
    };
    let is_by_them = match (&rules.committers, email) {
        (Some(patterns), Some(email)) => {
            patterns.iter().any(|one| fits(&one.to_ascii_lowercase(), &email.to_ascii_lowercase()))
        }
        _ => true,
    };
    let goes_there = match (&rules.logins, &wanted.subject) {
        (Some(logins), Subject::Login { user, host: Some(host) }) => logins
            .iter()
            .any(|one| fits(&one.user, user) && one.hosts.iter().any(|key| key == host)),
        (Some(_), Subject::Login { host: None, .. }) => false,
        (Some(_), _) => !operations.contains(&Operation::Login),
        (None, _) => true,
    };
    !operations.is_empty() && all_are_lent && is_by_them && goes_there
}

fn asks(rules: &Rules, wanted: &Wanted) -> bool {
    wanted.operations.iter().any(|one| rules.ask.has(one))
}

impl Judge {
    fn now(&self) -> &Rules {
        &self.settings.last().unwrap().0
    }

    /// Why an operation that begins must not, if that is so. Notes that it was allowed.
    fn complain(&mut self, one: &Asked, can_record: bool) -> Result<(), String> {
        let rules = self.now();
        if !is_lent(rules, &one.wanted) {
            return Err("it isn't lent".to_owned());
        }
        if rules.needs_record && !can_record {
            return Err("it can't be recorded".to_owned());
        }
        // What a person has said until the decision, and when that was.
        let about = topic(&one.wanted);
        let is_yes = |said: &Said| said.topic == about && said.word != PersonsWord::No;
        let own_yes =
            self.said.iter().position(|said| is_yes(said) && Some(said.question) == one.question);
        let anothers = self.said[one.said..]
            .iter()
            .position(|said| is_yes(said) && said.word == PersonsWord::ForAWhile);
        let (heard, at) = match (own_yes, one.question, anothers) {
            (Some(index), _, _) => (index + 1, self.said[index].at),
            (None, None, _) => (one.said, one.since),
            (None, Some(_), Some(index)) => (one.said + index + 1, self.said[one.said + index].at),
            (None, Some(_), None) => return Err("nobody has answered".to_owned()),
        };
        let heard = &self.said[..heard];
        let standing_yes = |settings: usize| {
            heard.iter().any(|said| {
                let is_for_a_while = said.word == PersonsWord::ForAWhile && is_yes(said);
                is_for_a_while && said.settings == settings && at < said.at + 15 * MINUTE
            })
        };
        let newest = self.settings.len() - 1;
        if asks(rules, &one.wanted) && own_yes.is_none() && !standing_yes(newest) {
            return Err("nobody has said yes".to_owned());
        }
        let is_recent_no = |said: &Said| {
            said.word == PersonsWord::No && said.topic == about && at < said.at + MINUTE
        };
        if heard.iter().any(is_recent_no) {
            return Err("a person has just said no".to_owned());
        }
        let (then, since) = &self.settings[one.settings];
        if let (Some(limit), Some(before)) = (then.limit, one.allowed) {
            let counts = |(key, used): &&(KeyName, Instant)| {
                *key == one.wanted.key && *used + limit.time() > at
            };
            let used = self.allowed[*since..before].iter().filter(counts).count();
            let is_used_up = used >= usize::try_from(limit.count).unwrap();
            if is_used_up && !standing_yes(one.settings) {
                return Err(format!("{used} uses before, at most {limit}"));
            }
        }
        Ok(())
    }
}

struct Record(Rc<Cell<bool>>);

impl Recorder for Record {
    fn is_ready(&self) -> bool {
        self.0.get()
    }

    fn record(&self, entry: &Entry<'_>) {
        let was_refused = matches!(entry.decided, Some(Decided::Refused(_)));
        assert!(!was_refused || entry.outcome == Outcome::Refused);
    }
}

struct Bridge {
    operations: Operations,
    judge: Judge,
    asked: Vec<Asked>,
    can_record: Rc<Cell<bool>>,
    somebody_is_there: bool,
    now: Instant,
}

impl Bridge {
    fn new() -> Self {
        let (operations, can_record) = (Operations::default(), Rc::new(Cell::new(true)));
        operations.record_with(Rc::new(Record(Rc::clone(&can_record))));
        let now = Instant::now();
        let settings = vec![(operations.rules(), 0)];
        let judge = Judge { settings, said: Vec::new(), allowed: Vec::new() };
        Self { operations, judge, asked: Vec::new(), can_record, somebody_is_there: false, now }
    }

    fn shown(&self) -> BTreeSet<u64> {
        self.operations.questions().iter().map(|question| question.id).collect()
    }

    fn happens(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Request(wanted) => self.request(wanted)?,
            Event::Answer(which, word) => {
                let shown: Vec<u64> = self.shown().into_iter().collect();
                if let Some(id) = shown.get(which % shown.len().max(1)) {
                    self.answer(*id, word);
                }
            }
            Event::LateAnswer(id, word) => {
                if !self.shown().contains(&id) {
                    let taken = self.operations.answer(id, word, "late", self.now);
                    prop_assert!(taken.is_err());
                }
            }
            Event::Time(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.operations.expire(self.now);
                let late = self.operations.questions().iter().any(|one| one.until <= self.now);
                prop_assert!(!late);
            }
            Event::Settings(rules) => {
                let (before, since) = self.judge.settings.last().unwrap();
                let used = self.judge.allowed.len();
                let since = if rules.limit == before.limit { *since } else { used };
                if rules != *before {
                    self.judge.settings.push((rules.clone(), since));
                }
                self.operations.set_rules(rules);
            }
            Event::SomebodyIsThere(is_there) => {
                self.somebody_is_there = is_there;
                self.operations.set_can_ask(is_there);
            }
            Event::CanRecord(can) => self.can_record.set(can),
            Event::End(which) => {
                let begun = self.asked.iter().position(|one| one.has_begun);
                if let Some(at) = begun.filter(|_| which % 2 == 0) {
                    self.asked.remove(at).turn.finish(Outcome::Succeeded, None, self.now);
                }
            }
            Event::Go(which) if !self.asked.is_empty() => {
                self.asked.remove(which % self.asked.len());
            }
            Event::Go(_) => {}
        }
        prop_assert!(self.operations.questions().len() <= 3);
        self.look()
    }

    fn request(&mut self, wanted: Wanted) -> Result<(), TestCaseError> {
        let before = self.shown();
        let turn = self.operations.queue(wanted.clone(), self.now);
        let question = self.shown().difference(&before).next().copied();
        let rules = self.judge.now();
        let said_no = self.judge.said.iter().any(|said| said.word == PersonsWord::No);
        if question.is_some() {
            let has_reason = asks(rules, &wanted) || rules.limit.is_some();
            prop_assert!(has_reason && self.somebody_is_there && is_lent(rules, &wanted));
        } else if is_lent(rules, &wanted)
            && !asks(rules, &wanted)
            && rules.limit.is_none()
            && (!rules.needs_record || self.can_record.get())
            && !said_no
        {
            prop_assert_eq!(turn.refusal(), None, "what is lent is done");
        }
        let is_allowed = question.is_none() && turn.refusal().is_none();
        let allowed = is_allowed.then_some(self.judge.allowed.len());
        if is_allowed {
            self.judge.allowed.push((wanted.key, self.now));
        }
        self.asked.push(Asked {
            wanted,
            turn,
            since: self.now,
            settings: self.judge.settings.len() - 1,
            question,
            said: self.judge.said.len(),
            allowed,
            has_begun: false,
        });
        Ok(())
    }

    fn answer(&mut self, id: u64, word: PersonsWord) {
        let one = self.asked.iter().find(|one| one.question == Some(id)).unwrap();
        let (topic, key, at) = (topic(&one.wanted), one.wanted.key, self.now);
        let waited = self.shown().len();
        if self.operations.answer(id, word, "a test", at).is_ok() {
            let settings = self.judge.settings.len() - 1;
            self.judge.said.push(Said { question: id, topic, word, at, settings });
            if word != PersonsWord::No {
                let allowed = waited - self.shown().len();
                self.judge.allowed.extend(std::iter::repeat_n((key, at), allowed));
            }
        }
    }

    /// Every operation that may begin does so.
    fn look(&mut self) -> Result<(), TestCaseError> {
        for one in &mut self.asked {
            one.turn.drive(self.now);
            if one.turn.has_come() && !one.has_begun {
                if let Err(complaint) = self.judge.complain(one, self.can_record.get()) {
                    let rules = self.judge.now();
                    return Err(TestCaseError::fail(format!(
                        "{complaint}: {} began under {rules:?}",
                        one.wanted.operations
                    )));
                }
                one.has_begun = true;
            }
        }
        Ok(())
    }
}

fn key(first: char) -> KeyName {
    KeyName::Grip(KeyGrip::parse(first.to_string().repeat(40).as_bytes()).unwrap())
}

fn host(number: u8) -> Fingerprint {
    Fingerprint::of(&[number]).unwrap()
}

fn person(email: &str) -> Person {
    Person { name: "Somebody".to_owned(), email: email.to_owned() }
}

fn subject() -> impl Strategy<Value = (OperationSet, Subject)> {
    let set = |operations: &[Operation]| operations.iter().copied().collect::<OperationSet>();
    let commit = move |email| {
        let subject = Subject::Commit {
            tree: String::new(),
            parents: Vec::new(),
            author: person("ada@example.org"),
            committer: person(email),
            fields: Vec::new(),
            message: Vec::new(),
        };
        (set(&[Operation::Commit]), subject)
    };
    let tag = move |email| {
        let (name, object, message) = (String::new(), String::new(), Vec::new());
        (set(&[Operation::Tag]), Subject::Tag { name, object, tagger: person(email), message })
    };
    let login = move |(user, proven): (&str, Option<u8>)| {
        let subject = Subject::Login { user: user.to_owned(), host: proven.map(host) };
        (set(&[Operation::Login]), subject)
    };
    let others = vec![
        (set(&[Operation::Sign]), Subject::Hash),
        (set(&[Operation::Sign, Operation::Certify]), Subject::Hash),
        (set(&[]), Subject::Hash),
        (set(&[Operation::Decrypt]), Subject::SessionKey),
        (set(&[Operation::Sshsig]), Subject::Message { namespace: "git".to_owned() }),
        (set(&[Operation::Login, Operation::Sshsig]), Subject::Data),
    ];
    prop_oneof![
        3 => select(&EMAILS[..]).prop_map(commit),
        1 => select(&EMAILS[..]).prop_map(tag),
        2 => (select(&USERS[..]), proptest::option::of(0..3u8)).prop_map(login),
        3 => select(others),
    ]
}

fn operations() -> impl Strategy<Value = OperationSet> {
    subsequence(&Operation::ALL[..], 0..=7).prop_map(|some| some.into_iter().collect())
}

fn mostly<T: std::fmt::Debug>(
    none: u32,
    some: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(1.0 / f64::from(none + 1), some)
}

fn rules() -> impl Strategy<Value = Rules> {
    let everything: OperationSet = Operation::ALL.into_iter().collect();
    let uses = prop_oneof![3 => Just(everything), 1 => operations()];
    let ask = prop_oneof![1 => Just(OperationSet::NONE), 1 => operations()];
    let limit = select(vec!["1/m", "2/m", "2/h", "3/d"]);
    let limit = limit.prop_map(|limit| limit.parse::<Limit>().unwrap());
    let patterns = select(vec!["*", "ada@example.org", "*@Example.org", "kim@*", "nobody"]);
    let committers = vec(patterns.prop_map(str::to_owned), 0..3);
    let login = (select(vec!["*", "git", "git*", "root"]), vec((0..3u8).prop_map(host), 0..3))
        .prop_map(|(user, hosts)| LoginRule { user: user.to_owned(), hosts });
    (
        uses,
        ask,
        mostly(2, limit),
        mostly(3, committers),
        mostly(3, vec(login, 0..3)),
        proptest::bool::weighted(0.2),
    )
        .prop_map(|(uses, ask, limit, committers, logins, needs_record)| Rules {
            uses,
            ask,
            limit,
            committers,
            logins,
            needs_record,
        })
}

fn event() -> impl Strategy<Value = Event> {
    let word = || select(vec![PersonsWord::Once, PersonsWord::ForAWhile, PersonsWord::No]);
    let key = select(vec!['A', 'A', 'A', 'B']).prop_map(key);
    let wanted = (subject(), key).prop_map(|((operations, subject), key)| Wanted {
        operations,
        key,
        subject,
    });
    let seconds = select(vec![0, 1, 29, 59, 60, 61, 299, 300, 899, 900, 3600, 86_400]);
    prop_oneof![
        10 => wanted.prop_map(Event::Request),
        5 => (any::<usize>(), word()).prop_map(|(which, word)| Event::Answer(which, word)),
        1 => (0..60u64, word()).prop_map(|(id, word)| Event::LateAnswer(id, word)),
        3 => seconds.prop_map(Event::Time),
        2 => rules().prop_map(Event::Settings),
        1 => proptest::bool::weighted(0.8).prop_map(Event::SomebodyIsThere),
        1 => any::<bool>().prop_map(Event::CanRecord),
        3 => any::<usize>().prop_map(Event::End),
        1 => any::<usize>().prop_map(Event::Go),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_begins_that_the_settings_in_force_do_not_allow(
        settings in rules(),
        events in vec(event(), 1..80),
    ) {
        let mut bridge = Bridge::new();
        bridge.happens(Event::SomebodyIsThere(true))?;
        bridge.happens(Event::Settings(settings))?;
        for event in events {
            bridge.happens(event)?;
        }
    }
}
