//! The host's secret keys, and which of them a target may use.
//!
//! The keys are those that `gpg -K` and `gpgsm -K` list. The list is read again when a file of the
//! keyring has changed, when a key has expired, or when the user lends others; a session keeps the
//! keys that it began with.

mod choice;
mod listing;
mod overview;
mod rights;
mod stamp;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::gate::LentKeys;
use tokio::sync::Mutex;

use crate::gnupg::{Dirs, Gnupg};
use crate::keys::KeyFilter;
use crate::{Error, Result};
pub use choice::Choice;
pub(crate) use overview::{Overview, OwnKey, SentKey};
pub use rights::{Lending, Uses};
use stamp::Stamp;

/// How long a list is used at most: a keyring may depend on files that aren't checked.
const LONGEST_AGE: Duration = Duration::from_mins(10);

/// How long after a failure gpg isn't run again, so that not every client starts it.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The keys of one bridge. Its sessions share it.
#[derive(Debug)]
pub struct Keyring {
    source: Source,
    lending: RefCell<Lending>,
    /// The last list. Locked while it is made, so that it is made once for all who wait.
    listed: Mutex<Option<Listed>>,
    /// When listing failed.
    failed: Cell<Option<Instant>>,
    /// What is shown of it.
    summary: RefCell<Summary>,
}

#[derive(Debug)]
enum Source {
    Gnupg(Gnupg),
    Fixed(Arc<LentKeys>),
}

#[derive(Debug)]
struct Listed {
    dirs: Dirs,
    stamp: Stamp,
    at: Instant,
    lending: Lending,
    choice: Rc<Choice>,
}

/// What is lent now, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// How many keys.
    pub keys: usize,
    /// Why no key is lent, if that is an error.
    pub problem: Option<String>,
}

impl Keyring {
    /// The keys of a GnuPG home, and the user's choice as it resolves now.
    pub async fn open(gnupg: Gnupg, lending: Lending) -> Result<(Self, Rc<Choice>)> {
        let listed = Listed::new(&gnupg, lending.clone()).await?;
        let choice = Rc::clone(&listed.choice);
        let keyring = Self::with_source(Source::Gnupg(gnupg), lending);
        keyring.summary.replace(Summary { keys: choice.keys.len(), problem: None });
        Ok((Self { listed: Mutex::new(Some(listed)), ..keyring }, choice))
    }

    /// The keys of a GnuPG home that can't be listed now. It is tried again when a session begins.
    pub fn unlisted(gnupg: Gnupg, lending: Lending, error: &Error) -> Self {
        let keyring = Self::with_source(Source::Gnupg(gnupg), lending);
        keyring.refuse(error);
        keyring
    }

    /// These keys, whatever GnuPG has.
    pub fn fixed(keys: LentKeys) -> Self {
        let count = keys.len();
        let keyring = Self::with_source(Source::Fixed(Arc::new(keys)), Lending::default());
        keyring.summary.replace(Summary { keys: count, problem: None });
        keyring
    }

    fn with_source(source: Source, lending: Lending) -> Self {
        Self {
            source,
            lending: RefCell::new(lending),
            listed: Mutex::new(None),
            failed: Cell::new(None),
            summary: RefCell::default(),
        }
    }

    /// What is lent now, as far as it is known.
    pub fn summary(&self) -> Summary {
        self.summary.borrow().clone()
    }

    /// Lends other keys from now on, and gives back warnings. A choice that matches no key is an error.
    pub async fn lend(&self, lending: Lending) -> Result<Vec<String>> {
        let Source::Gnupg(gnupg) = &self.source else { return Ok(Vec::new()) };
        let mut listed = self.listed.lock().await;
        let now = Listed::new(gnupg, lending.clone()).await?;
        self.summary.replace(Summary { keys: now.choice.keys.len(), problem: None });
        self.lending.replace(lending);
        let warnings = now.choice.warnings.clone();
        *listed = Some(now);
        Ok(warnings)
    }

    /// Lends what was lent before. Keys that can't be listed now are lent once they can be, and no others.
    pub async fn lend_again(&self, lending: Lending) {
        self.lending.replace(lending);
        self.current().await;
    }

    /// The public keys that a target gets: those that the setting names, or else those of the secret keys
    /// that are lent.
    pub async fn public_keys(&self) -> KeyFilter {
        self.current().await;
        let listed = self.listed.lock().await;
        match &*self.lending.borrow() {
            Lending { lend: Some(_), keys: None, .. } => {
                let lent = listed.as_ref().map(|listed| listed.choice.primary.clone());
                KeyFilter::List(lent.unwrap_or_default())
            }
            lending => lending.public_keys(),
        }
    }

    /// The keys for a session that begins now. None where they can't be listed.
    pub async fn current(&self) -> Arc<LentKeys> {
        let gnupg = match &self.source {
            Source::Gnupg(gnupg) => gnupg,
            Source::Fixed(keys) => return Arc::clone(keys),
        };
        let mut listed = self.listed.lock().await;
        let lending = self.lending.borrow().clone();
        if let Some(listed) = listed.as_ref().filter(|listed| listed.is_current(&lending)) {
            return Arc::clone(&listed.choice.keys);
        }
        if self.failed.get().is_some_and(|at| at.elapsed() < PAUSE_AFTER_FAILURE) {
            return Arc::default();
        }
        match Listed::new(gnupg, lending).await {
            Ok(now) => {
                self.failed.set(None);
                self.summary.replace(Summary { keys: now.choice.keys.len(), problem: None });
                Arc::clone(&listed.insert(now).choice.keys)
            }
            Err(error) => {
                *listed = None;
                self.refuse(&error);
                Arc::default()
            }
        }
    }

    /// Lends nothing for a while, and says why.
    fn refuse(&self, error: &Error) {
        self.failed.set(Some(Instant::now()));
        let problem = Some(format!("no key is lent: {error}"));
        if self.summary.borrow().problem != problem {
            tracing::warn!(%error, "no key is lent");
        }
        self.summary.replace(Summary { keys: 0, problem });
    }
}

impl Listed {
    async fn new(gnupg: &Gnupg, lending: Lending) -> Result<Self> {
        let dirs = gnupg.dirs().await?;
        // Taken first: a change while gpg runs is noticed the next time.
        let (stamp, at) = (Stamp::of(&dirs), Instant::now());
        let choice = Rc::new(Choice::make(gnupg, &lending).await?);
        Ok(Self { dirs, stamp, at, lending, choice })
    }

    fn is_current(&self, lending: &Lending) -> bool {
        self.lending == *lending
            && self.at.elapsed() < LONGEST_AGE
            && self.choice.until.is_none_or(|until| SystemTime::now() < until)
            && Stamp::of(&self.dirs).is_still(&self.stamp)
    }
}
