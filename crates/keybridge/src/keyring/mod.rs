//! The host's secret keys, and which of them a target may use.
//!
//! The keys are those that `gpg -K` and `gpgsm -K` list. The list is read again when a file of the
//! keyring has changed, when a key has expired, or when the user lends others; a session keeps the
//! keys that it began with.

mod lending;
mod listing;
mod stamp;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::gate::{KeyGrip, LentKeys, Use};
use keybridge_proto::printable;
use tokio::sync::Mutex;

use crate::gnupg::{Dirs, Gnupg};
use crate::keys::KeyFilter;
use crate::{Error, Result};
use lending::Chosen;
pub use lending::{Lending, Uses};
use listing::{Listing, Protocol, SecretKey};
use stamp::Stamp;

/// What a listing may print; a key takes about a kilobyte.
const MAX_LISTING: usize = 16 * 1024 * 1024;

/// How many keys can be lent. Each session may be told all of them at once, in 20 bytes each.
const MOST_LENT: usize = 4096;

/// A list is made again at the latest then: a keyring may also depend on files that aren't looked at.
const LONGEST_AGE: Duration = Duration::from_mins(10);

/// A gpg that fails isn't run again for each client.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The keys of one bridge. Its sessions share it.
#[derive(Debug)]
pub struct Keyring {
    source: Source,
    lending: RefCell<Lending>,
    /// The last list. Held while it is made, so that it is made once for all who wait.
    listed: Mutex<Option<Listed>>,
    /// When a list could not be made.
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
    /// Why it is none, if that is an error.
    pub problem: Option<String>,
}

/// What a user's choice comes to.
#[derive(Debug)]
pub struct Choice {
    keys: Arc<LentKeys>,
    /// The primary keys of those that are lent.
    primary: Vec<String>,
    /// What the user is to be told of it.
    pub warnings: Vec<String>,
    /// When a key of the keyring expires next.
    until: Option<SystemTime>,
}

impl Keyring {
    /// The keys of a GnuPG home, and what the user's choice comes to now.
    pub async fn open(gnupg: Gnupg, lending: Lending) -> Result<(Self, Rc<Choice>)> {
        let listed = Listed::new(&gnupg, lending.clone()).await?;
        let choice = Rc::clone(&listed.choice);
        let keyring = Self::with_source(Source::Gnupg(gnupg), lending);
        keyring.summary.replace(Summary { keys: choice.keys.len(), problem: None });
        Ok((Self { listed: Mutex::new(Some(listed)), ..keyring }, choice))
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

    /// Lends other keys from now on, unless the user's words name none.
    pub async fn lend(&self, lending: Lending) -> Result<()> {
        let Source::Gnupg(gnupg) = &self.source else { return Ok(()) };
        let mut listed = self.listed.lock().await;
        let now = Listed::new(gnupg, lending.clone()).await?;
        self.summary.replace(Summary { keys: now.choice.keys.len(), problem: None });
        self.lending.replace(lending);
        *listed = Some(now);
        Ok(())
    }

    /// The public keys that a target gets: those of the setting, or, where only secret keys are named,
    /// those of them that are lent.
    pub async fn public_keys(&self) -> KeyFilter {
        self.current().await;
        let lending = self.lending.borrow().clone();
        match (&lending, &*self.listed.lock().await) {
            (Lending { lend: Some(_), keys: None, .. }, Some(listed)) => {
                KeyFilter::List(listed.choice.primary.clone())
            }
            _ => lending.public_keys(),
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
                self.failed.set(Some(Instant::now()));
                *listed = None;
                let problem = Some(format!("no key is lent: {error}"));
                if self.summary.borrow().problem != problem {
                    tracing::warn!(%error, "no key is lent");
                }
                self.summary.replace(Summary { keys: 0, problem });
                Arc::default()
            }
        }
    }
}

impl Listed {
    async fn new(gnupg: &Gnupg, lending: Lending) -> Result<Self> {
        let dirs = gnupg.dirs().await?;
        // Taken first: what changes meanwhile is seen the next time.
        let (stamp, at) = (Stamp::of(&dirs), Instant::now());
        let choice = Rc::new(choose(gnupg, &lending).await?);
        Ok(Self { dirs, stamp, at, lending, choice })
    }

    fn is_current(&self, lending: &Lending) -> bool {
        self.lending == *lending
            && self.at.elapsed() < LONGEST_AGE
            && self.choice.until.is_none_or(|until| SystemTime::now() < until)
            && Stamp::of(&self.dirs).is_still(&self.stamp)
    }
}

/// The keys that the user's words name. Words that name none at all are an error that lists what
/// there is.
async fn choose(gnupg: &Gnupg, lending: &Lending) -> Result<Choice> {
    let Listing { keys: all, expiries } = secret_keys(gnupg, None).await?;
    let Ok(filter) = lending.words().parse::<KeyFilter>();
    let mut warnings = Vec::new();
    let chosen: Vec<Chosen<'_>> = match &filter {
        KeyFilter::Pairs | KeyFilter::All => {
            all.iter().map(|key| Chosen { key, exactly: false }).collect()
        }
        KeyFilter::List(words) => {
            let mut chosen = Vec::new();
            for word in words {
                let named = Named::find(gnupg, word).await?;
                let before = chosen.len();
                let exactly = named.is_exact();
                let keys = all.iter().filter(|key| named.is(key));
                chosen.extend(keys.map(|key| Chosen { key, exactly }));
                if chosen.len() == before {
                    warnings.push(format!("no secret key matches {}", printable(word)));
                }
            }
            chosen
        }
    };
    match &lending.lend {
        Some(words) if chosen.is_empty() && matches!(filter, KeyFilter::List(_)) => {
            return Err(nothing_matches(words, &all));
        }
        Some(_) => {}
        // The words are for public keys, which others may have the secret halves of.
        None => warnings.clear(),
    }
    let keys = lending::rights(&all, &chosen, lending.uses.unwrap_or_default());
    if keys.len() > MOST_LENT {
        let message = format!("{} keys can't be lent; the most is {MOST_LENT}", keys.len());
        return Err(Error::failed(message).hint("choose some with --lend"));
    }
    let is_lent = |key: &SecretKey| key.keygrips.iter().any(|grip| keys.find(*grip).is_some());
    warnings.extend(chosen.iter().filter_map(|chosen| not_own(chosen.key, is_lent(chosen.key))));
    if keys.is_empty() {
        warnings.push(match all.len() {
            0 => "there is no secret key in this GnuPG home, so none is lent".to_owned(),
            _ => "no secret key is lent: none of those chosen may sign or decrypt".to_owned(),
        });
    }
    let mut primary: Vec<String> = chosen
        .iter()
        .filter(|chosen| chosen.key.protocol == Protocol::OpenPgp && is_lent(chosen.key))
        .map(|chosen| chosen.key.primary.clone())
        .collect();
    primary.sort();
    primary.dedup();
    Ok(Choice { keys: Arc::new(keys), primary, warnings, until: next_expiry(&expiries) })
}

/// Tells of an OpenPGP key that isn't lent because nothing shows that it is the user's.
fn not_own(key: &SecretKey, is_lent: bool) -> Option<String> {
    let is_meant = key.protocol == Protocol::OpenPgp && !key.is_own && !is_lent;
    is_meant.then(|| {
        let SecretKey { fingerprint, primary, user_id, .. } = key;
        format!(
            "{fingerprint} isn't lent: the primary key {primary} ({}) isn't here and isn't trusted \
             ultimately; name it with --lend {fingerprint}! if it is yours",
            printable(user_id)
        )
    })
}

impl Choice {
    /// `2 sign, 1 decrypts`.
    pub fn describe(&self) -> String {
        let count = |is_it: fn(Use, Use) -> bool| {
            let rights = self.keys.keygrips().filter_map(|keygrip| self.keys.find(keygrip));
            rights.filter(|rights| is_it(rights.sign, rights.decrypt)).count()
        };
        let signing = count(|sign, _| sign != Use::Denied);
        let decrypting = count(|_, decrypt| decrypt != Use::Denied);
        let verb = |count, one, many| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let parts = [verb(signing, "signs", "sign"), verb(decrypting, "decrypts", "decrypt")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

/// What one word of the setting names.
enum Named {
    Keygrip(KeyGrip),
    /// Exactly the key whose fingerprint ends so.
    Exactly(String),
    /// All keys of these primary keys.
    Primary(Vec<String>),
    Nothing,
}

impl Named {
    async fn find(gnupg: &Gnupg, word: &str) -> Result<Self> {
        if let Some(digits) = word.strip_prefix('&') {
            let keygrip = KeyGrip::parse(digits.as_bytes());
            return Ok(keygrip.map_or(Self::Nothing, Self::Keygrip));
        }
        if let Some(id) = word.strip_suffix('!') {
            let id = id.strip_prefix("0x").unwrap_or(id).replace(' ', "").to_uppercase();
            let is_id = id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            return Ok(if is_id { Self::Exactly(id) } else { Self::Nothing });
        }
        let listing = secret_keys(gnupg, Some(word)).await?;
        Ok(Self::Primary(listing.keys.into_iter().map(|key| key.primary).collect()))
    }

    const fn is_exact(&self) -> bool {
        match self {
            Self::Keygrip(_) | Self::Exactly(_) => true,
            Self::Primary(_) | Self::Nothing => false,
        }
    }

    fn is(&self, key: &SecretKey) -> bool {
        match self {
            Self::Keygrip(keygrip) => key.keygrips.contains(keygrip),
            Self::Exactly(id) => key.fingerprint.ends_with(id),
            Self::Primary(primary) => primary.contains(&key.primary),
            Self::Nothing => false,
        }
    }
}

/// The secret keys of gpg and, where it is installed, of gpgsm; all, or those that a word names.
async fn secret_keys(gnupg: &Gnupg, word: Option<&str>) -> Result<Listing> {
    let arguments = |options: &[&str]| -> Vec<OsString> {
        let words = ["--with-colons", "--with-keygrip", "--list-secret-keys", "--"];
        options.iter().copied().chain(words).chain(word).map(OsString::from).collect()
    };
    let output = gnupg.gpg(&arguments(&["--fixed-list-mode"]), MAX_LISTING).await?;
    // A word that names no key makes gpg fail, and so does a home that can't be read.
    if !output.status.success() && word.is_none() {
        return Err(output.error("gpg").context("listing secret keys"));
    }
    let mut listing = listing::parse(&output.stdout, Protocol::OpenPgp);
    let validating = ["--with-validation", "--disable-crl-checks"];
    // Its failure takes no OpenPGP key away.
    match gnupg.gpgsm(&arguments(&validating), MAX_LISTING).await {
        Ok(Some(output)) if output.status.success() || word.is_some() => {
            let more = listing::parse(&output.stdout, Protocol::X509);
            listing.keys.extend(more.keys);
            listing.expiries.extend(more.expiries);
        }
        Ok(Some(output)) => {
            let error = output.error("gpgsm");
            tracing::info!(%error, "no X.509 key is lent");
        }
        Ok(None) => {}
        Err(error) => tracing::info!(%error, "no X.509 key is lent"),
    }
    Ok(listing)
}

fn next_expiry(expiries: &[u64]) -> Option<SystemTime> {
    let now = SystemTime::now();
    let moments = expiries.iter().filter_map(|seconds| {
        // The first second in which a key is no longer valid.
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.checked_add(1)?))
    });
    moments.filter(|moment| *moment > now).min()
}

fn nothing_matches(words: &str, all: &[SecretKey]) -> Error {
    let shown = all.iter().map(|key| {
        let (letters, user_id) = (key.capabilities.letters(), printable(&key.user_id));
        format!("{} [{letters}] {user_id}", key.fingerprint)
    });
    Error::failed(format!("no secret key matches {}", printable(words)))
        .listing(shown.collect(), "gpg -K")
}
