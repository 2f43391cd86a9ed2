//! Resolves the user's choice: the secret keys that it names, and what they may be used for.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keybridge_proto::gate::{KeyGrip, LentKeys, Use};
use keybridge_proto::printable;

use super::key_id::KeyId;
use super::listing::{self, Capabilities, Listing, Owner, Protocol, SecretKey};
use super::rights::{self, Chosen, Lent};
use super::signers::Signer;
use super::{Ceiling, Lending, ssh_use};
use crate::gnupg::Gnupg;
use crate::keys::KeyFilter;
use crate::{Error, Result};

/// What a listing may print; a key takes about a kilobyte.
const MAX_LISTING: usize = 16 * 1024 * 1024;

/// How many keys can be lent. A session can list all of them at once, in 20 bytes each.
const MOST_LENT: usize = 4096;

/// A choice of keys, resolved.
#[derive(Debug)]
pub struct Choice {
    pub(super) keys: Arc<LentKeys>,
    /// Each of them with its record.
    pub(super) lent: Vec<Lent>,
    /// How many keys are held back, or some use of them, since `up` hasn't shown it.
    pub(super) held_back: u64,
    /// Those of the chosen keys that can sign for git, whether they are lent or not.
    pub(super) signers: Vec<Signer>,
    /// Warnings for the user, but for that of keys that are held back.
    pub(crate) warnings: Vec<String>,
    /// When a key of the keyring expires next.
    pub(super) until: Option<SystemTime>,
}

impl Choice {
    /// Resolves a choice. One that matches no key is an error that lists the keys there are.
    pub(super) async fn make(gnupg: &Gnupg, home: &Path, lending: &Lending) -> Result<Self> {
        Self::of(&secret_keys(gnupg, home).await?, gnupg, lending).await
    }

    /// Resolves a choice of listed keys.
    pub(super) async fn of(listing: &Listing, gnupg: &Gnupg, lending: &Lending) -> Result<Self> {
        let Listing { keys: all, expiries, .. } = listing;
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
        let uses = lending.uses.unwrap_or_default();
        let lent = rights::rights(all, &chosen, uses);
        let keys: LentKeys = lent.iter().map(|lent| (lent.keygrip, lent.rights)).collect();
        if keys.len() > MOST_LENT {
            let message = format!("can't lend {} keys: the limit is {MOST_LENT}", keys.len());
            return Err(Error::failed(message).hint("choose some with --lend"));
        }
        let is_lent =
            |key: &SecretKey| lent.iter().any(|lent| key.keygrips.contains(&lent.keygrip));
        warnings
            .extend(chosen.iter().filter_map(|chosen| not_lent(chosen.key, is_lent(chosen.key))));
        if lent.is_empty() {
            warnings.push(match all.len() {
                0 => "there is no secret key in this GnuPG home, so none is lent".to_owned(),
                _ => "no secret key is lent: none of those chosen may sign or decrypt".to_owned(),
            });
        }
        let until = next_expiry(expiries);
        let signers = Signer::among(&chosen);
        Ok(Self { keys: Arc::new(keys), lent, held_back: 0, signers, warnings, until })
    }

    /// What is left of it below a ceiling.
    pub(super) fn below(mut self, ceiling: &Ceiling) -> Self {
        let mut less = Vec::new();
        for lent in &mut self.lent {
            let before = (lent.rights, lent.for_git);
            (lent.rights, lent.for_git) = ceiling.cut(lent);
            if before != (lent.rights, lent.for_git) && !less.contains(&lent.keygrip) {
                less.push(lent.keygrip);
            }
        }
        self.held_back = less.iter().map(|_| 1).sum();
        self.lent.retain(|lent| lent.rights.is_any() || lent.for_git);
        let keys: LentKeys = self.lent.iter().map(|lent| (lent.keygrip, lent.rights)).collect();
        self.keys = Arc::new(keys);
        self
    }

    /// How many keys are lent, for whatever.
    pub(super) fn count(&self) -> usize {
        let grips: BTreeSet<KeyGrip> = self.lent.iter().map(|lent| lent.keygrip).collect();
        grips.len()
    }

    /// Those that may sign commits or tags, on the git lane or with gpg in the target.
    pub(super) fn signers(&self, by_gpg: bool) -> impl Iterator<Item = &Signer> {
        self.signers.iter().filter(move |signer| signer.is_lent(&self.lent, by_gpg))
    }

    /// Warnings for the user.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().cloned().chain(held_back(self.held_back)).collect()
    }

    /// The primary keys of those that are lent.
    pub(super) fn primary(&self) -> Vec<String> {
        let mut primary: Vec<String> =
            self.lent.iter().filter_map(|lent| lent.primary.clone()).collect();
        primary.sort();
        primary.dedup();
        primary
    }

    /// The key id of a key, and an address of who signs with it.
    pub(super) fn name_of(&self, key: KeyGrip) -> Option<String> {
        let signer = self.signers.iter().find(|signer| signer.keygrip() == key);
        let lent = || self.lent.iter().find(|lent| lent.keygrip == key);
        let fingerprint = signer
            .map(|signer| &signer.fingerprint)
            .or_else(|| lent().map(|lent| &lent.fingerprint))?;
        let id = fingerprint.get(fingerprint.len().saturating_sub(16)..)?;
        let address = signer.and_then(|signer| signer.addresses.first());
        Some(address.map_or_else(|| id.to_owned(), |address| format!("{id} <{address}>")))
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
        let for_git = self.lent.iter().filter(|lent| lent.for_git).count();
        let commits = if signing == 0 {
            verb(for_git, "signs commits and tags", "sign commits and tags")
        } else {
            None
        };
        let parts =
            [verb(signing, "signs", "sign"), commits, verb(decrypting, "decrypts", "decrypt")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

/// The warning for keys that are new since `up`.
pub(crate) fn held_back(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 new key isn't lent: run up again".to_owned()),
        count => Some(format!("{count} new keys aren't lent: run up again")),
    }
}

/// The warning for an OpenPGP key that isn't lent though it may look so, and how it can be.
fn not_lent(key: &SecretKey, is_lent: bool) -> Option<String> {
    if is_lent || key.protocol != Protocol::OpenPgp {
        return None;
    }
    let SecretKey { fingerprint, primary, user_id, .. } = key;
    let user_id = printable(user_id);
    let is_for = |one| key.capabilities.has(one);
    match key.owner {
        Owner::User if !key.is_for_ssh || !key.is_valid => None,
        Owner::User => (is_for(Capabilities::SIGN) || is_for(Capabilities::DECRYPT)).then(|| {
            format!(
                "{fingerprint} isn't lent: gpg-agent uses it for ssh, so it only authenticates; name \
                 it with --lend {fingerprint}! to lend it"
            )
        }),
        Owner::Disputed => Some(format!(
            "{fingerprint} isn't lent: the key pair of its primary key {primary} ({user_id}) is in \
             another key block too, or used for ssh, and it isn't trusted ultimately; name it with \
             --lend {fingerprint}! if it is yours"
        )),
        Owner::Unchecked => Some(format!(
            "{fingerprint} isn't lent: gpgsm can't list certificates, of which one may have the key pair \
             of its primary key {primary} ({user_id}), and that isn't trusted ultimately; name it with \
             --lend {fingerprint}! if it is yours"
        )),
        Owner::Unknown => Some(format!(
            "{fingerprint} isn't lent: the primary key {primary} ({user_id}) isn't here and isn't \
             trusted ultimately; name it with --lend {fingerprint}! if it is yours"
        )),
    }
}

/// What one word of the setting names.
enum Named {
    Keygrip(KeyGrip),
    /// Exactly the key with this id.
    Exactly(KeyId),
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
        if word.ends_with('!') {
            return Ok(KeyId::parse_long(word).map_or(Self::Nothing, Self::Exactly));
        }
        let listing = list(gnupg, Some(word)).await?;
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
            Self::Exactly(id) => id.is_of(&key.fingerprint),
            Self::Primary(primary) => primary.contains(&key.primary),
            Self::Nothing => false,
        }
    }
}

/// The secret keys of gpg and, where it is installed, of gpgsm, with what this home says of them.
pub(super) async fn secret_keys(gnupg: &Gnupg, home: &Path) -> Result<Listing> {
    let mut listing = list(gnupg, None).await?;
    let keygrips = listing.keys.iter().flat_map(|key| key.keygrips.iter().copied());
    let for_ssh = ssh_use::find(home, keygrips)?;
    listing.mark_for_ssh(|keygrip| for_ssh.contains(&keygrip));
    listing.find_owners();
    Ok(listing)
}

/// All secret keys, or those that a word names.
async fn list(gnupg: &Gnupg, word: Option<&str>) -> Result<Listing> {
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
    // If gpgsm fails, OpenPGP keys are lent all the same that are trusted ultimately.
    match gnupg.gpgsm(&arguments(&validating), MAX_LISTING).await {
        Ok(Some(output)) if output.status.success() || word.is_some() => {
            let more = listing::parse(&output.stdout, Protocol::X509);
            listing.keys.extend(more.keys);
            listing.expiries.extend(more.expiries);
        }
        Ok(Some(output)) => {
            let error = output.error("gpgsm");
            tracing::info!(%error, "no X.509 key is lent");
            listing.lacks_certificates = true;
        }
        Ok(None) => {}
        Err(error) => {
            tracing::info!(%error, "no X.509 key is lent");
            listing.lacks_certificates = true;
        }
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
