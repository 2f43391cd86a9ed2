//! The host's secret keys, and which of them a target may use.
//!
//! The keys are those that `gpg -K` and `gpgsm -K` list. The list is read again when a file of the
//! keyring has changed, when a key has expired, or when the user lends others. A session asks for it when
//! it begins and at each operation. What `up` has shown is the most that is lent of it.

mod ceiling;
mod choice;
mod key_id;
mod listing;
mod overview;
mod rights;
mod signers;
mod ssh_use;
mod stamp;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::gate::{KeyGrip, KeySource, LentKeys, ReadingKeys};
use tokio::sync::Mutex;

use crate::agent::AgentDialer;
use crate::gnupg::{Dirs, Gnupg};
use crate::keys::KeyFilter;
use crate::{Error, Result};
pub use ceiling::{Ceiling, SharedCeiling};
pub use choice::Choice;
pub(crate) use choice::held_back;
pub(crate) use key_id::KeyId;
pub(crate) use overview::{Overview, OwnKey, SentKey};
pub use rights::Lending;
pub(crate) use signers::{NoSigner, Signer, address};
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
    ceiling: SharedCeiling,
    /// The last list. Locked while it is made, so that it is made once for all who wait.
    listed: Mutex<Option<Listed>>,
    /// When listing failed.
    failed: Cell<Option<Instant>>,
    /// The keys of the last list.
    known: RefCell<Arc<LentKeys>>,
    /// What is shown of it.
    summary: RefCell<Summary>,
}

impl KeySource for Keyring {
    fn known(&self) -> Arc<LentKeys> {
        Arc::clone(&self.known.borrow())
    }

    fn read(self: Rc<Self>) -> ReadingKeys {
        Box::pin(async move { self.current().await })
    }
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
    ceiling: Rc<Ceiling>,
    /// Below the ceiling.
    choice: Rc<Choice>,
}

/// What is lent now, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// How many keys.
    pub keys: usize,
    /// How many keys aren't lent, or not for everything, since they are new.
    pub held_back: u64,
    /// Why no key is lent, if that is an error.
    pub problem: Option<String>,
}

impl Keyring {
    /// The keys of a GnuPG home, and the user's choice as it resolves now. That sets the ceiling, unless it
    /// is set already.
    pub async fn open(
        gnupg: Gnupg,
        lending: Lending,
        ceiling: &SharedCeiling,
    ) -> Result<(Self, Rc<Choice>)> {
        let listed = if ceiling.is_set() {
            Listed::new(&gnupg, lending.clone(), ceiling.get()).await?
        } else {
            Listed::raising(&gnupg, lending.clone(), ceiling).await?
        };
        Ok(Self::with_list(gnupg, lending, ceiling, listed))
    }

    /// The same below the ceiling, whether it is set or not.
    pub(crate) async fn open_below(
        gnupg: Gnupg,
        lending: Lending,
        ceiling: &SharedCeiling,
    ) -> Result<(Self, Rc<Choice>)> {
        let listed = Listed::new(&gnupg, lending.clone(), ceiling.get()).await?;
        Ok(Self::with_list(gnupg, lending, ceiling, listed))
    }

    /// The keys of a GnuPG home that can't be listed now. It is tried again when a session begins.
    pub(crate) fn unlisted(
        gnupg: Gnupg,
        lending: Lending,
        ceiling: &SharedCeiling,
        error: &Error,
    ) -> Self {
        let keyring = Self::with_source(Source::Gnupg(gnupg), lending, ceiling);
        keyring.refuse(error);
        keyring
    }

    /// These keys, whatever GnuPG has.
    pub fn fixed(keys: LentKeys) -> Self {
        let (count, keys) = (keys.len(), Arc::new(keys));
        let source = Source::Fixed(Arc::clone(&keys));
        let keyring = Self::with_source(source, Lending::default(), &SharedCeiling::default());
        keyring.known.replace(keys);
        keyring.summary.replace(Summary { keys: count, ..Summary::default() });
        keyring
    }

    fn with_list(
        gnupg: Gnupg,
        lending: Lending,
        ceiling: &SharedCeiling,
        listed: Listed,
    ) -> (Self, Rc<Choice>) {
        let choice = Rc::clone(&listed.choice);
        let keyring = Self::with_source(Source::Gnupg(gnupg), lending, ceiling);
        keyring.publish(&choice);
        (Self { listed: Mutex::new(Some(listed)), ..keyring }, choice)
    }

    fn with_source(source: Source, lending: Lending, ceiling: &SharedCeiling) -> Self {
        Self {
            source,
            lending: RefCell::new(lending),
            ceiling: ceiling.clone(),
            listed: Mutex::new(None),
            failed: Cell::new(None),
            known: RefCell::default(),
            summary: RefCell::default(),
        }
    }

    /// Reads the keys again if they have changed, unless that would start gpg-agent.
    pub(crate) async fn refresh(&self) {
        let (lending, ceiling) = (self.lending.borrow().clone(), self.ceiling.get());
        let socket = match &*self.listed.lock().await {
            Some(listed) if !listed.is_current(&lending, &ceiling) => {
                listed.dirs.agent_socket.clone()
            }
            Some(_) | None => return,
        };
        if AgentDialer::at(socket).dial().await.is_ok() {
            self.current().await;
        }
    }

    /// What is lent now, as far as it is known.
    pub(crate) fn summary(&self) -> Summary {
        self.summary.borrow().clone()
    }

    /// The key id and the address of a key of the last list, unless one is made just now.
    pub(crate) fn name_of(&self, key: KeyGrip) -> Option<String> {
        let listed = self.listed.try_lock().ok()?;
        listed.as_ref()?.choice.name_of(key)
    }

    /// Lends other keys from now on, and gives back warnings. A choice that matches no key is an error. For
    /// a person who runs `up` it `raises` the ceiling, to what is lent then.
    pub(crate) async fn lend(&self, lending: Lending, raises: bool) -> Result<Vec<String>> {
        let Source::Gnupg(gnupg) = &self.source else { return Ok(Vec::new()) };
        let mut listed = self.listed.lock().await;
        let now = if raises {
            Listed::raising(gnupg, lending.clone(), &self.ceiling).await?
        } else {
            Listed::new(gnupg, lending.clone(), self.ceiling.get()).await?
        };
        self.publish(&now.choice);
        self.lending.replace(lending);
        let warnings = now.choice.warnings();
        *listed = Some(now);
        Ok(warnings)
    }

    /// The public keys that a target gets: those that the setting names, or else those of the secret keys
    /// that are lent.
    pub(crate) async fn public_keys(&self) -> KeyFilter {
        self.current().await;
        let listed = self.listed.lock().await;
        match &*self.lending.borrow() {
            Lending { lend: Some(_), keys: None, .. } => {
                let lent = listed.as_ref().map(|listed| listed.choice.primary());
                KeyFilter::List(lent.unwrap_or_default())
            }
            lending => lending.public_keys(),
        }
    }

    /// The keys that are lent now. None where they can't be listed.
    pub async fn current(&self) -> Arc<LentKeys> {
        let gnupg = match &self.source {
            Source::Gnupg(gnupg) => gnupg,
            Source::Fixed(keys) => return Arc::clone(keys),
        };
        let mut listed = self.listed.lock().await;
        let (lending, ceiling) = (self.lending.borrow().clone(), self.ceiling.get());
        let is_current = |listed: &&Listed| listed.is_current(&lending, &ceiling);
        if let Some(listed) = listed.as_ref().filter(is_current) {
            return Arc::clone(&listed.choice.keys);
        }
        if self.failed.get().is_some_and(|at| at.elapsed() < PAUSE_AFTER_FAILURE) {
            return Arc::default();
        }
        match Listed::new(gnupg, lending, ceiling).await {
            Ok(now) => {
                self.failed.set(None);
                self.publish(&now.choice);
                Arc::clone(&listed.insert(now).choice.keys)
            }
            Err(error) => {
                *listed = None;
                self.refuse(&error);
                Arc::default()
            }
        }
    }

    /// The key that git means by a name, if it may sign on the git lane now; and the home that it is in.
    pub(crate) async fn signer(&self, name: &[u8]) -> Result<(Signer, Gnupg, PathBuf), NoSigner> {
        self.find_signer(name, false).await
    }

    async fn find_signer(
        &self,
        name: &[u8],
        by_gpg: bool,
    ) -> Result<(Signer, Gnupg, PathBuf), NoSigner> {
        let Source::Gnupg(gnupg) = &self.source else { return Err(NoSigner::NotLent) };
        self.current().await;
        if self.summary().problem.is_some() {
            return Err(NoSigner::Unlisted);
        }
        let listed = self.listed.lock().await;
        let listed = listed.as_ref().ok_or(NoSigner::NotLent)?;
        let signers: Vec<Signer> = listed.choice.signers(by_gpg).cloned().collect();
        let signer = Signer::find(&signers, name)?.clone();
        Ok((signer, gnupg.clone(), listed.dirs.home.clone()))
    }

    /// The fingerprint of the key that git is to be set up with: the one that a name means, with a `!` if the
    /// name has one, or else the first one that may sign.
    pub(crate) async fn fingerprint_for_git(&self, name: Option<&str>) -> Option<String> {
        if let Some(name) = name {
            let (signer, ..) = self.find_signer(name.as_bytes(), true).await.ok()?;
            let exactly = if name.ends_with('!') { "!" } else { "" };
            return Some(signer.fingerprint + exactly);
        }
        self.current().await;
        let listed = self.listed.lock().await;
        listed.as_ref()?.choice.signers(true).next().map(|signer| signer.fingerprint.clone())
    }

    /// Lends nothing for a while, and says why.
    fn refuse(&self, error: &Error) {
        self.failed.set(Some(Instant::now()));
        let problem = Some(format!("no key is lent: {error}"));
        if self.summary.borrow().problem != problem {
            tracing::warn!(%error, "no key is lent");
        }
        self.known.take();
        self.summary.replace(Summary { problem, ..Summary::default() });
    }

    /// Lends the keys of a list from now on.
    fn publish(&self, choice: &Choice) {
        self.known.replace(Arc::clone(&choice.keys));
        let Choice { held_back: new, .. } = *choice;
        let before =
            self.summary.replace(Summary { keys: choice.count(), held_back: new, problem: None });
        if let Some(warning) = held_back(new).filter(|_| before.held_back != new) {
            tracing::warn!("{warning}");
        }
    }
}

impl Listed {
    /// Lists the keys, and lends those below a ceiling.
    async fn new(gnupg: &Gnupg, lending: Lending, ceiling: Rc<Ceiling>) -> Result<Self> {
        Self::limited(gnupg, lending, |choice| Ok((choice.below(&ceiling), ceiling))).await
    }

    /// Lists the keys, and sets the ceiling to what is lent now.
    async fn raising(gnupg: &Gnupg, lending: Lending, ceiling: &SharedCeiling) -> Result<Self> {
        let raise = |choice: Choice| {
            ceiling.set(Ceiling::of(&choice.lent))?;
            Ok((choice, ceiling.get()))
        };
        Self::limited(gnupg, lending, raise).await
    }

    async fn limited(
        gnupg: &Gnupg,
        lending: Lending,
        limit: impl FnOnce(Choice) -> Result<(Choice, Rc<Ceiling>)>,
    ) -> Result<Self> {
        let dirs = gnupg.dirs().await?;
        // Taken first: a change while gpg runs is noticed the next time.
        let (stamp, at) = (Stamp::of(&dirs), Instant::now());
        let (choice, ceiling) = limit(Choice::make(gnupg, &dirs.home, &lending).await?)?;
        Ok(Self { dirs, stamp, at, lending, ceiling, choice: Rc::new(choice) })
    }

    fn is_current(&self, lending: &Lending, ceiling: &Rc<Ceiling>) -> bool {
        self.lending == *lending
            && Rc::ptr_eq(&self.ceiling, ceiling)
            && self.at.elapsed() < LONGEST_AGE
            && self.choice.until.is_none_or(|until| SystemTime::now() < until)
            && Stamp::of(&self.dirs).is_still(&self.stamp)
    }
}
