//! The questions of a bridge, and the ways to ask a person.
//!
//! ```text
//!             ┌─ keybridge approve, in any number of terminals ─┐
//! question ───┼─ a notification of the desktop ─────────────────┼──▶ the first answer wins
//!             └─ where there is neither: gpg-agent's pinentry ──┘
//! ```
//!
//! Each bridge has its own, in its own process. A way of asking counts as long as it is there: without any,
//! what would have to be asked is refused.

mod console;
mod notification;
mod pinentry;
mod text;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::rc::{Rc, Weak};
use std::str::FromStr;
use std::time::{Duration, Instant};

use keybridge_proto::permission::{
    AnswerError, AskedBy, Decided, KeyName, PersonsWord, Question, Wanted,
};
use keybridge_proto::session::Operations;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::gnupg::Gnupg;
use crate::target::TargetAddress;
pub(crate) use console::{Console, Key};

/// How many consoles can be there: a person looks at one.
const MOST_CONSOLES: usize = 8;

/// How long a way that has failed counts as none.
const PAUSE: Duration = Duration::from_mins(1);

/// How many questions that have ended are remembered for consoles, which look soon.
const REMEMBERED: usize = 16;

/// A way to ask a person, in the words of the setting `ask-by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `keybridge approve`.
    Approve,
    /// A notification of the desktop.
    Notification,
    /// gpg-agent's pinentry.
    Pinentry,
}

/// A word that names no way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected approve, notification or pinentry")]
pub(crate) struct UnknownWay;

impl Way {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Approve, Self::Notification, Self::Pinentry];

    /// Its word.
    const fn word(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Notification => "notification",
            Self::Pinentry => "pinentry",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Way {
    type Err = UnknownWay;

    fn from_str(word: &str) -> Result<Self, UnknownWay> {
        Self::ALL.into_iter().find(|way| way.word() == word).ok_or(UnknownWay)
    }
}

/// A question as it is shown: what the host knows, and nothing that a target says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Its number.
    pub(crate) id: u64,
    /// What is wanted.
    pub(crate) wanted: Wanted,
    /// The key, as the user knows it.
    pub(crate) key: String,
    /// Why it is asked.
    pub(crate) why: AskedBy,
}

/// How a question has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ended {
    /// It was decided.
    Decided(Decided),
    /// Its client has gone.
    Gone,
}

/// The questions of one bridge. Its tasks share it, on one thread.
#[derive(Debug)]
pub(crate) struct Asking {
    operations: Operations,
    ways: RefCell<Vec<Way>>,
    consoles: Cell<usize>,
    /// The ways that have failed, and when.
    failed: RefCell<Vec<(Way, Instant)>>,
    /// The last question whose notification was closed without an answer.
    closed: Cell<Option<u64>>,
    /// The last ones, and what was decided on them.
    ended: RefCell<VecDeque<(u64, Decided)>>,
    /// Counts changes.
    changes: watch::Sender<u64>,
}

/// A console that is connected: it counts as a way of asking.
#[derive(Debug)]
pub(crate) struct Connected<'a>(&'a Asking);

/// No more consoles are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotServed {
    /// The user has said so.
    #[error("the bridge doesn't ask by keybridge approve: its ask-by has other ways")]
    OtherWays,
    /// There are as many as may be.
    #[error("{MOST_CONSOLES} consoles follow the bridge's questions already")]
    TooMany,
}

impl Asking {
    pub(crate) fn new(operations: &Operations, ways: Vec<Way>) -> Rc<Self> {
        let asking = Rc::new(Self {
            operations: operations.clone(),
            ways: RefCell::new(ways),
            consoles: Cell::new(0),
            failed: RefCell::default(),
            closed: Cell::new(None),
            ended: RefCell::default(),
            changes: watch::channel(0).0,
        });
        let watcher = Rc::downgrade(&asking);
        operations.watch_questions(Rc::new(move |decided| {
            if let Some(asking) = Weak::upgrade(&watcher) {
                asking.note(decided);
            }
        }));
        asking.count_ways();
        asking
    }

    /// Asks in these ways from now on.
    pub(crate) fn set_ways(&self, ways: Vec<Way>) {
        self.ways.replace(ways);
        self.count_ways();
    }

    /// Serves a console, for as long as what it gets lives.
    pub(crate) fn connect(&self) -> Result<Connected<'_>, NotServed> {
        if !self.has(Way::Approve) {
            return Err(NotServed::OtherWays);
        }
        if self.consoles.get() >= MOST_CONSOLES {
            return Err(NotServed::TooMany);
        }
        self.consoles.set(self.consoles.get() + 1);
        self.count_ways();
        Ok(Connected(self))
    }

    /// A person at a console answers.
    pub(crate) fn answer(&self, id: u64, word: PersonsWord) -> Result<(), AnswerError> {
        self.operations.answer(id, word, Way::Approve.word(), Instant::now())
    }

    /// The questions that wait, the oldest first.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.operations.questions()
    }

    /// How a question that doesn't wait any more has ended.
    pub(crate) fn how_ended(&self, id: u64) -> Ended {
        let ended = self.ended.borrow();
        let decided = ended.iter().find(|(ended, _)| *ended == id);
        decided.map_or(Ended::Gone, |(_, decided)| Ended::Decided(decided.clone()))
    }

    /// Tells of changes of the questions.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends questions in time, and asks by windows of the desktop.
    pub(crate) async fn run(
        &self,
        target: &TargetAddress,
        gnupg: impl Fn() -> Gnupg,
        key_name: impl Fn(KeyName) -> String,
    ) -> Infallible {
        let asks = async |way| -> Infallible {
            loop {
                self.ask_by(way, target, &gnupg, &key_name).await;
            }
        };
        tokio::select! {
            never = self.end_in_time() => never,
            never = asks(Way::Notification) => never,
            never = asks(Way::Pinentry) => never,
        }
    }

    async fn end_in_time(&self) -> Infallible {
        let mut changes = self.changes();
        loop {
            let failed = self.failed.borrow().iter().map(|(_, at)| *at + PAUSE).min();
            let next = self.operations.deadline().into_iter().chain(failed).min();
            let time = async {
                match next {
                    Some(next) => sleep_until(next.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = time => {
                    let now = Instant::now();
                    self.operations.expire(now);
                    self.failed.borrow_mut().retain(|(_, at)| now < *at + PAUSE);
                    self.count_ways();
                }
            }
        }
    }

    /// Waits for a question that is to be asked in this way, and asks it.
    async fn ask_by(
        &self,
        way: Way,
        target: &TargetAddress,
        gnupg: impl Fn() -> Gnupg,
        key_name: impl Fn(KeyName) -> String,
    ) {
        let mut changes = self.changes();
        let Some(question) = self.next_for(way) else {
            let _ = changes.changed().await;
            return;
        };
        let id = question.id;
        let text = text::short(target, &Asked::new(question, key_name));
        let asking = async {
            match way {
                // Consoles ask by themselves.
                Way::Approve => pending().await,
                Way::Notification => {
                    let title = format!("{} asks", text::name_of(target));
                    notification::ask(&title, &text).await
                }
                Way::Pinentry => pinentry::ask(gnupg(), &text).await.map(Some),
            }
        };
        let withdrawn = async {
            while self.next_for(way).is_some_and(|question| question.id == id) {
                let _ = changes.changed().await;
            }
        };
        let answer = tokio::select! {
            answer = asking => answer,
            () = withdrawn => return,
        };
        match answer {
            Ok(Some(word)) => {
                // Somebody may have been first.
                let _ = self.operations.answer(id, word, way.word(), Instant::now());
            }
            Ok(None) => {
                self.closed.set(Some(id));
                self.count_ways();
            }
            Err(error) => {
                tracing::warn!(%error, "can't ask by {way}");
                self.failed.borrow_mut().push((way, Instant::now()));
                self.count_ways();
            }
        }
    }

    /// The question that is to be asked in this way now.
    fn next_for(&self, way: Way) -> Option<Question> {
        let question = self.operations.questions().into_iter().find(|question| {
            let is_notified = || self.is_there(Way::Notification) && !self.is_closed(question.id);
            match way {
                Way::Approve => false,
                Way::Notification => is_notified(),
                Way::Pinentry => self.consoles.get() == 0 && !is_notified(),
            }
        });
        question.filter(|_| self.is_there(way))
    }

    /// Whether its notification was closed without an answer.
    fn is_closed(&self, id: u64) -> bool {
        self.closed.get().is_some_and(|closed| id <= closed)
    }

    fn has(&self, way: Way) -> bool {
        self.ways.borrow().contains(&way)
    }

    fn is_there(&self, way: Way) -> bool {
        let is_possible = match way {
            Way::Approve => self.consoles.get() > 0,
            Way::Notification => notification::is_there(),
            // That is known when it is tried.
            Way::Pinentry => true,
        };
        is_possible && self.has(way) && !self.failed.borrow().iter().any(|(one, _)| *one == way)
    }

    /// A way of asking may have come or gone.
    fn count_ways(&self) {
        self.operations.set_can_ask(Way::ALL.into_iter().any(|way| self.is_there(way)));
        self.changes.send_modify(|count| *count += 1);
    }

    fn note(&self, decided: &[(u64, Decided)]) {
        let mut ended = self.ended.borrow_mut();
        ended.extend(decided.iter().cloned());
        let old = ended.len().saturating_sub(REMEMBERED);
        ended.drain(..old);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        let Self(asking) = self;
        asking.consoles.set(asking.consoles.get().saturating_sub(1));
        asking.count_ways();
    }
}

impl Asked {
    /// A question with the name of its key.
    pub(crate) fn new(question: Question, key_name: impl Fn(KeyName) -> String) -> Self {
        let Question { id, wanted, asked_by: why, until: _ } = question;
        Self { id, key: key_name(wanted.key), wanted, why }
    }
}

#[cfg(test)]
fn commit_of(id: u64, message: &[&str]) -> Asked {
    use keybridge_proto::Operation;
    use keybridge_proto::gate::KeyGrip;
    use keybridge_proto::permission::{Person, Subject};

    let ada = Person { name: "Ada".to_owned(), email: "ada@example.org".to_owned() };
    let subject = Subject::Commit {
        tree: "3d20439".repeat(5),
        parents: vec!["9f3a565".repeat(5)],
        author: ada.clone(),
        committer: ada,
        fields: Vec::new(),
        message: message.iter().map(|line| (*line).to_owned()).collect(),
    };
    let key = KeyName::Grip(KeyGrip::parse("A".repeat(40).as_bytes()).unwrap());
    let wanted = Wanted { operations: [Operation::Commit].into_iter().collect(), key, subject };
    Asked { id, wanted, key: "830CBD98D0B71E17".to_owned(), why: AskedBy::Rule }
}
