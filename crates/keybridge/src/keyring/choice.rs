//! Resolves the user's choice: the secret keys that it names, and what they may be used for.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keybridge_proto::gate::{KeyGrip, LentKeys, Use};
use keybridge_proto::printable;

use super::Lending;
use super::listing::{self, Listing, Protocol, SecretKey};
use super::rights::{self, Chosen};
use crate::gnupg::Gnupg;
use crate::keys::KeyFilter;
use crate::{Error, Result};

/// What a listing may print; a key takes about a kilobyte.
const MAX_LISTING: usize = 16 * 1024 * 1024;

/// How many keys can be lent. Each session may be told all of them at once, in 20 bytes each.
const MOST_LENT: usize = 4096;

/// A choice of keys, resolved.
#[derive(Debug)]
pub struct Choice {
    pub(super) keys: Arc<LentKeys>,
    /// The primary keys of those that are lent.
    pub(super) primary: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// When a key of the keyring expires next.
    pub(super) until: Option<SystemTime>,
}

impl Choice {
    /// Resolves a choice. One that matches no key is an error that lists the keys there are.
    pub(super) async fn make(gnupg: &Gnupg, lending: &Lending) -> Result<Self> {
        Self::of(&secret_keys(gnupg, None).await?, gnupg, lending).await
    }

    /// Resolves a choice of listed keys.
    pub(super) async fn of(listing: &Listing, gnupg: &Gnupg, lending: &Lending) -> Result<Self> {
        let Listing { keys: all, expiries } = listing;
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
                return Err(nothing_matches(words, all));
            }
            Some(_) => {}
            // Here the words name public keys, and their secret halves may be elsewhere.
            None => warnings.clear(),
        }
        let keys = rights::rights(all, &chosen, lending.uses.unwrap_or_default());
        if keys.len() > MOST_LENT {
            let message = format!("can't lend {} keys: the limit is {MOST_LENT}", keys.len());
            return Err(Error::failed(message).hint("choose some with --lend"));
        }
        let is_lent = |key: &SecretKey| key.keygrips.iter().any(|grip| keys.find(*grip).is_some());
        warnings
            .extend(chosen.iter().filter_map(|chosen| not_own(chosen.key, is_lent(chosen.key))));
        if keys.is_empty() {
            warnings.push(match all.len() {
                0 => "there is no secret key in this GnuPG home, so none is lent".to_owned(),
                _ => "no secret key is lent: none of those chosen may sign or decrypt".to_owned(),
            });
        }
        let mut primary: Vec<String> = chosen
            .iter()
            .filter(|chosen| chosen.key.protocol == Protocol::OpenPgp && is_lent(chosen.key))
            // Not a stranger's key that claims the same key pair.
            .filter(|chosen| chosen.key.is_own || chosen.exactly)
            .map(|chosen| chosen.key.primary.clone())
            .collect();
        primary.sort();
        primary.dedup();
        Ok(Self { keys: Arc::new(keys), primary, warnings, until: next_expiry(expiries) })
    }

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

/// The warning for an OpenPGP key that isn't lent because nothing shows that it is the user's own.
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

/// What one word of the setting names.
enum Named {
    Keygrip(KeyGrip),
    /// Exactly the key whose fingerprint ends like this.
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
pub(super) async fn secret_keys(gnupg: &Gnupg, word: Option<&str>) -> Result<Listing> {
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
    // If gpgsm fails, OpenPGP keys are lent all the same.
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
