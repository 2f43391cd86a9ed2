//! The decisions of a bridge, in virtual time.

use std::time::{Duration, Instant};

use super::*;
use crate::gate::KeyGrip;
use crate::{Operation, OperationSet};

const SECOND: Duration = Duration::from_secs(1);

/// One bridge, and its clock.
struct Bench {
    permissions: Permissions,
    now: Instant,
    next: u64,
}

fn key(first: char) -> KeyName {
    KeyName::Grip(KeyGrip::parse(first.to_string().repeat(40).as_bytes()).unwrap())
}

fn wanted(operation: Operation, key: KeyName) -> Wanted {
    Wanted { operations: [operation].into_iter().collect(), key, subject: Subject::Hash }
}

fn commit_of(email: &str) -> Wanted {
    let person = Person { name: "A".to_owned(), email: email.to_owned() };
    let author = Person { name: "B".to_owned(), email: "b@elsewhere".to_owned() };
    let subject = Subject::Commit {
        tree: String::new(),
        parents: Vec::new(),
        author,
        committer: person,
        fields: Vec::new(),
        message: Vec::new(),
    };
    Wanted { subject, ..wanted(Operation::Commit, key('A')) }
}

const REFUSED_ALREADY: Decision = Decision::Now(Decided::Refused(Refusal::EarlierNo));
const LENT: Decision = Decision::Now(Decided::Settings);

fn refused(refusal: Refusal) -> Decision {
    Decision::Now(Decided::Refused(refusal))
}

impl Bench {
    fn new(rules: Rules) -> Self {
        let mut permissions = Permissions::default();
        assert!(permissions.set_rules(rules).is_empty());
        assert!(permissions.set_can_ask(true).is_empty());
        Self { permissions, now: Instant::now(), next: 0 }
    }

    /// One whose commits are asked for.
    fn asking() -> Self {
        Self::new(Rules { ask: [Operation::Commit].into_iter().collect(), ..Rules::default() })
    }

    fn request(&mut self, wanted: &Wanted) -> (u64, Decision) {
        self.next += 1;
        (self.next, self.permissions.request(self.next, wanted, true, self.now))
    }

    fn commit(&mut self) -> (u64, Decision) {
        self.request(&wanted(Operation::Commit, key('A')))
    }

    fn ask(&mut self) -> u64 {
        let (id, decision) = self.commit();
        assert_eq!(decision, Decision::Asked);
        id
    }

    fn answer(&mut self, id: u64, word: PersonsWord) -> Vec<(u64, Decided)> {
        self.permissions.answer(id, word, "approve", self.now).unwrap()
    }

    fn shown(&self) -> Vec<u64> {
        self.permissions.questions().map(|question| question.id).collect()
    }

    fn pass(&mut self, time: Duration) -> Vec<(u64, Decided)> {
        self.now += time;
        self.permissions.expire(self.now)
    }
}

fn by_person() -> Decided {
    Decided::Person("approve".to_owned())
}

#[test]
fn what_is_lent_needs_no_word_and_what_is_not_gets_none() {
    let mut bench = Bench::new(Rules::default());
    assert_eq!(bench.commit().1, LENT);
    assert_eq!(bench.request(&wanted(Operation::Certify, key('A'))).1, refused(Refusal::NotLent));
    let nothing = Wanted { operations: OperationSet::NONE, ..wanted(Operation::Tag, key('A')) };
    assert_eq!(bench.request(&nothing).1, refused(Refusal::NotLent));
    // What may be one of two has to be lent as both.
    let either = [Operation::Sign, Operation::Certify].into_iter().collect();
    let either = Wanted { operations: either, ..nothing };
    assert_eq!(bench.request(&either).1, refused(Refusal::NotLent));
}

#[test]
fn a_yes_counts_once_and_a_no_for_a_minute() {
    let mut bench = Bench::asking();
    let id = bench.ask();
    assert_eq!(bench.answer(id, PersonsWord::Once), [(id, by_person())]);
    let id = bench.ask();
    assert_eq!(bench.answer(id, PersonsWord::No), [(id, Decided::Refused(Refusal::No))]);
    bench.pass(59 * SECOND);
    assert_eq!(bench.commit().1, REFUSED_ALREADY);
    // The no is for this key and this operation.
    assert_eq!(bench.request(&wanted(Operation::Commit, key('B'))).1, Decision::Asked);
    assert_eq!(bench.request(&wanted(Operation::Tag, key('A'))).1, LENT);
    bench.pass(SECOND);
    bench.ask();
}

#[test]
fn thirty_commits_are_one_question_that_is_answered_for_a_while() {
    let mut bench = Bench::asking();
    let (first, second) = (bench.ask(), bench.ask());
    let (other, _) = bench.request(&wanted(Operation::Commit, key('B')));
    assert_eq!(
        bench.answer(first, PersonsWord::ForAWhile),
        [(first, by_person()), (second, Decided::EarlierYes)]
    );
    assert_eq!(bench.shown(), [other]);
    let commit = wanted(Operation::Commit, key('A'));
    let now = bench.permissions.changes();
    for _ in 0..30 {
        assert_eq!(bench.commit().1, Decision::Now(Decided::EarlierYes));
        assert_eq!(
            bench.permissions.refuse(&commit, Some((&Decided::EarlierYes, now)), true),
            None
        );
    }
    bench.pass(15 * 60 * SECOND);
    bench.ask();
}

#[test]
fn an_answer_counts_once_and_in_time() {
    let mut bench = Bench::asking();
    let (first, second, third) = (bench.ask(), bench.ask(), bench.ask());
    bench.answer(first, PersonsWord::Once);
    let again = bench.permissions.answer(first, PersonsWord::No, "editor", bench.now);
    assert_eq!(again, Err(AnswerError::Answered));
    bench.permissions.withdraw(second);
    let late = bench.permissions.answer(second, PersonsWord::Once, "approve", bench.now);
    assert_eq!(late, Err(AnswerError::TooLate));
    let after_its_time = bench.now + 60 * SECOND;
    let late = bench.permissions.answer(third, PersonsWord::Once, "approve", after_its_time);
    assert_eq!(late, Err(AnswerError::TooLate));
    assert_eq!(bench.pass(60 * SECOND), [(third, Decided::Refused(Refusal::Unanswered))]);
    let unknown = bench.permissions.answer(99, PersonsWord::Once, "approve", bench.now);
    assert_eq!(unknown, Err(AnswerError::TooLate));
}

#[test]
fn two_questions_without_an_answer_silence_a_target() {
    let mut bench = Bench::asking();
    bench.ask();
    assert_eq!(bench.pass(60 * SECOND).len(), 1);
    bench.ask();
    bench.pass(60 * SECOND);
    for _ in 0..4 {
        assert_eq!(bench.commit().1, refused(Refusal::Silenced));
        bench.pass(60 * SECOND);
    }
    bench.pass(60 * SECOND);
    let id = bench.ask();
    // An answer counts the unanswered ones from the beginning.
    bench.answer(id, PersonsWord::Once);
    bench.ask();
    bench.pass(60 * SECOND);
    bench.ask();
}

#[test]
fn three_questions_wait_and_those_of_clients_that_are_gone_count() {
    let mut bench = Bench::asking();
    let ids = [bench.ask(), bench.ask(), bench.ask()];
    assert_eq!(bench.commit().1, refused(Refusal::TooMany));
    for id in ids {
        bench.permissions.withdraw(id);
    }
    assert!(bench.shown().is_empty());
    // A target can't show a person one question after the other by leaving.
    assert_eq!(bench.commit().1, refused(Refusal::TooMany));
    // Nor does leaving silence it: a person may stop git.
    assert!(bench.pass(60 * SECOND).is_empty());
    bench.ask();
}

#[test]
fn without_anybody_to_ask_the_reason_is_told() {
    let mut bench = Bench::asking();
    let waiting = bench.ask();
    let ended = bench.permissions.set_can_ask(false);
    assert_eq!(ended, [(waiting, Decided::Refused(Refusal::Nobody))]);
    assert_eq!(bench.commit().1, refused(Refusal::Nobody));
    let limit = Some("1/h".parse().unwrap());
    assert!(bench.permissions.set_rules(Rules { limit, ..Rules::default() }).is_empty());
    assert_eq!(bench.commit().1, LENT);
    assert_eq!(bench.commit().1, refused(Refusal::Limit));
}

#[test]
fn a_limit_counts_each_key_and_asks_beyond() {
    let limit = Some("3/h".parse().unwrap());
    let mut bench = Bench::new(Rules { limit, ..Rules::default() });
    for _ in 0..3 {
        assert_eq!(bench.commit().1, LENT);
        bench.pass(10 * 60 * SECOND);
    }
    assert_eq!(bench.request(&wanted(Operation::Commit, key('B'))).1, LENT);
    let id = bench.ask();
    bench.answer(id, PersonsWord::Once);
    // The first one is an hour old, and the one that was allowed counts.
    bench.pass(30 * 60 * SECOND);
    bench.ask();
    bench.pass(10 * 60 * SECOND);
    assert_eq!(bench.commit().1, LENT);
}

#[test]
fn only_listed_committers_and_taggers_get_signatures() {
    let committers = Some(vec!["*@Example.org".to_owned(), "bot@ci".to_owned()]);
    let mut bench = Bench::new(Rules { committers, ..Rules::default() });
    for (email, is_lent) in [
        ("ada@example.org", true),
        ("ADA@EXAMPLE.ORG", true),
        ("bot@ci", true),
        ("ada@example.org.evil", false),
        ("bot@ci2", false),
        ("", false),
    ] {
        let expected = if is_lent { LENT } else { refused(Refusal::Committer) };
        assert_eq!(bench.request(&commit_of(email)).1, expected, "{email}");
    }
    // A hash has no committer, and isn't a commit to anybody here.
    assert_eq!(bench.request(&wanted(Operation::Sign, key('A'))).1, LENT);
}

#[test]
fn only_listed_logins_are_allowed_and_the_host_has_to_have_proven_itself() {
    let host = |letter: &str| crate::ssh::Fingerprint::of(letter.as_bytes()).unwrap();
    let rule = LoginRule { user: "git".to_owned(), hosts: vec![host("a"), host("b")] };
    let mut bench = Bench::new(Rules { logins: Some(vec![rule]), ..Rules::default() });
    let login = |user: &[u8], host| Wanted {
        subject: Subject::login(user, host),
        ..wanted(Operation::Login, key('A'))
    };
    assert_eq!(bench.request(&login(b"git", Some(host("b")))).1, LENT);
    for (user, host) in [(&b"git"[..], Some(host("c"))), (b"git", None), (b"root", Some(host("a")))]
    {
        assert_eq!(bench.request(&login(user, host)).1, refused(Refusal::Login));
    }
    // What may be a login is none of those that are listed.
    let either = [Operation::Login, Operation::Sshsig].into_iter().collect();
    let data = Wanted { operations: either, key: key('A'), subject: Subject::Data };
    assert_eq!(bench.request(&data).1, refused(Refusal::Login));
    let message =
        Wanted { subject: Subject::message(b"git"), ..wanted(Operation::Sshsig, key('A')) };
    assert_eq!(bench.request(&message).1, LENT);
}

#[test]
fn narrower_rules_end_questions_and_yeses() {
    let mut bench = Bench::asking();
    let id = bench.ask();
    bench.answer(id, PersonsWord::ForAWhile);
    let (waiting, decision) = bench.request(&wanted(Operation::Commit, key('B')));
    assert_eq!(decision, Decision::Asked);
    let uses = [Operation::Tag].into_iter().collect();
    let ended = bench.permissions.set_rules(Rules { uses, ..Rules::default() });
    assert_eq!(ended, [(waiting, Decided::Refused(Refusal::NotLent))]);
    let ask = [Operation::Commit].into_iter().collect();
    assert!(bench.permissions.set_rules(Rules { ask, ..Rules::default() }).is_empty());
    assert_eq!(bench.commit().1, Decision::Asked);
}

#[test]
fn what_has_to_be_recorded_and_can_not_be_is_refused() {
    let mut bench = Bench::new(Rules { needs_record: true, ..Rules::default() });
    let wanted = wanted(Operation::Commit, key('A'));
    let unrecorded = bench.permissions.request(1, &wanted, false, bench.now);
    assert_eq!(unrecorded, refused(Refusal::Unrecorded));
    assert_eq!(bench.permissions.request(2, &wanted, true, bench.now), LENT);
}

#[test]
fn clients_that_leave_each_question_silence_a_target_and_for_longer_each_time() {
    let mut bench = Bench::asking();
    let mut silences = Vec::new();
    for _ in 0..5 {
        // A person who stops git now and then silences nothing.
        for _ in 0..if silences.is_empty() { 6 } else { 5 } {
            let id = bench.ask();
            bench.pass(59 * SECOND);
            bench.permissions.withdraw(id);
            assert!(bench.pass(SECOND).is_empty());
        }
        let mut silent = 0;
        while bench.commit().1 == refused(Refusal::Silenced) {
            bench.pass(60 * SECOND);
            silent += 1;
        }
        silences.push(silent);
        // The question that has ended the silence counts, too.
        let last = bench.shown()[0];
        bench.permissions.withdraw(last);
        bench.pass(60 * SECOND);
    }
    assert_eq!(silences, [5, 10, 20, 40, 60]);
}

#[test]
fn a_limit_counts_what_was_done_before_it_was_set() {
    let mut bench = Bench::new(Rules::default());
    for _ in 0..3 {
        assert_eq!(bench.commit().1, LENT);
    }
    let wanted = wanted(Operation::Commit, key('A'));
    let before = bench.permissions.changes();
    for (limit, is_used_up) in [("4/d", false), ("3/d", true), ("30/m", false), ("2/h", true)] {
        let limit = Some(limit.parse().unwrap());
        assert!(bench.permissions.set_rules(Rules { limit, ..Rules::default() }).is_empty());
        assert!(bench.permissions.set_can_ask(false).is_empty());
        // What was allowed before and waits isn't done under another limit.
        let waits = bench.permissions.refuse(&wanted, Some((&Decided::Settings, before)), true);
        assert_eq!(waits, Some(Refusal::Changed));
        let expected = if is_used_up { refused(Refusal::Limit) } else { LENT };
        assert_eq!(bench.request(&wanted).1, expected, "{limit:?}");
    }
}

#[test]
fn a_yes_to_a_login_is_for_that_user_and_host() {
    let host = |letter: &str| crate::ssh::Fingerprint::of(letter.as_bytes()).unwrap();
    let ask = [Operation::Login].into_iter().collect();
    let mut bench = Bench::new(Rules { ask, ..Rules::default() });
    let login = |user: &[u8], letter| Wanted {
        subject: Subject::login(user, Some(host(letter))),
        ..wanted(Operation::Login, key('A'))
    };
    let (id, _) = bench.request(&login(b"git", "a"));
    bench.answer(id, PersonsWord::ForAWhile);
    assert_eq!(bench.request(&login(b"git", "a")).1, Decision::Now(Decided::EarlierYes));
    let (id, decision) = bench.request(&login(b"root", "a"));
    assert_eq!(decision, Decision::Asked);
    assert_eq!(bench.request(&login(b"git", "b")).1, Decision::Asked);
    // A no is for all of them.
    assert_eq!(bench.answer(id, PersonsWord::No).len(), 2);
    assert_eq!(bench.request(&login(b"git", "a")).1, REFUSED_ALREADY);
}
