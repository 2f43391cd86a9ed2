//! All secret keys with what is lent of them, and the public keys that a target gets: for `doctor`.

use std::ffi::OsString;

use keybridge_proto::gate::{KeyGrip, Use};
use keybridge_proto::gpg_listing::{ListedKey, public_keys};
use keybridge_proto::inspection::Inspection;

use super::choice::{self, Choice};
use super::listing::{self, Protocol, SecretKey};
use super::{Ceiling, Lending};
use crate::Result;
use crate::gnupg::Gnupg;
use crate::keys;

/// What a listing of some keys may print.
const MAX_LISTING: usize = 4 * 1024 * 1024;

/// The keys of the host, and what a target gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Overview {
    /// Every secret key.
    pub(crate) own: Vec<OwnKey>,
    /// The public keys that are sent, up to a number.
    pub(crate) sent: Vec<SentKey>,
    /// What is lent, in some words.
    pub(crate) lent: String,
    pub(crate) warnings: Vec<String>,
}

/// A secret key, primary or sub.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OwnKey {
    pub(crate) fingerprint: String,
    pub(crate) primary: String,
    pub(crate) user_id: String,
    pub(crate) keygrips: Vec<KeyGrip>,
    pub(crate) is_openpgp: bool,
    /// Whether its owner meant it for signatures.
    pub(crate) is_for_signing: bool,
    /// Not expired, revoked or disabled.
    pub(crate) is_valid: bool,
    pub(crate) expires: Option<u64>,
    /// Whether the target may sign with it.
    pub(crate) signs: bool,
    /// Whether the target may decrypt with it.
    pub(crate) decrypts: bool,
}

/// A public key that a target gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SentKey {
    pub(crate) fingerprint: String,
    /// When it and its subkeys expire, by fingerprint.
    pub(crate) expiries: Vec<(String, Option<u64>)>,
    /// GnuPG's hash and the text of each user id that is valid.
    pub(crate) user_ids: Vec<(String, String)>,
    /// As `gpg --export-ownertrust` writes it, if it is set: 2 undefined to 6 ultimate.
    pub(crate) ownertrust: Option<u8>,
}

impl Overview {
    /// Lists the keys, and resolves a choice as a bridge would that may lend no more than this.
    pub(crate) async fn make(
        gnupg: &Gnupg,
        lending: &Lending,
        ceiling: Option<&Ceiling>,
    ) -> Result<Self> {
        let listing = choice::secret_keys(gnupg, &gnupg.dirs().await?.home).await?;
        let mut choice = Choice::of(&listing, gnupg, lending).await?;
        if let Some(ceiling) = ceiling {
            choice = choice.below(ceiling);
        }
        let own = listing.keys.iter().map(|key| OwnKey::new(key, &choice)).collect();
        let (lent, warnings) = (choice.describe(), choice.warnings());
        let filter = match lending {
            Lending { lend: Some(_), keys: None, .. } => keys::KeyFilter::List(choice.primary()),
            lending => lending.public_keys(),
        };
        let sent = keys::find(gnupg, &filter).await?;
        let sent = list(gnupg, sent.keys.into_iter().map(|key| key.fingerprint)).await?;
        Ok(Self { own, sent, lent, warnings })
    }

    /// The user ids of the keys that are lent for signatures.
    pub(crate) fn signing_user_ids(&self) -> impl Iterator<Item = &str> {
        let signs =
            |key: &&SentKey| self.own.iter().any(|own| own.signs && own.primary == key.fingerprint);
        let signing: Vec<&SentKey> = self.sent.iter().filter(signs).collect();
        signing.into_iter().flat_map(|key| key.user_ids.iter().map(|(_, text)| text.as_str()))
    }
}

impl OwnKey {
    fn new(key: &SecretKey, choice: &Choice) -> Self {
        let may = |allows: fn(Use, Use) -> Use| {
            let rights = key.keygrips.iter().filter_map(|keygrip| choice.keys.find(*keygrip));
            rights.into_iter().any(|rights| allows(rights.sign, rights.decrypt) != Use::Denied)
        };
        Self {
            fingerprint: key.fingerprint.clone(),
            primary: key.primary.clone(),
            user_id: key.user_id.clone(),
            keygrips: key.keygrips.clone(),
            is_openpgp: key.protocol == Protocol::OpenPgp,
            is_for_signing: key.capabilities.has(listing::Capabilities::SIGN),
            is_valid: key.is_valid,
            expires: key.expires,
            signs: may(|sign, _| sign),
            decrypts: may(|_, decrypt| decrypt),
        }
    }
}

async fn list(gnupg: &Gnupg, keys: impl Iterator<Item = String>) -> Result<Vec<SentKey>> {
    let words = ["--with-colons", "--fixed-list-mode", "--list-keys", "--"];
    let mut arguments: Vec<OsString> = words.map(OsString::from).into();
    let fixed = arguments.len();
    arguments.extend(keys.take(Inspection::MOST_KEYS).map(OsString::from));
    // gpg would list all keys if it were given none.
    if arguments.len() == fixed {
        return Ok(Vec::new());
    }
    let output = gnupg.gpg(&arguments, MAX_LISTING).await?;
    if !output.status.success() {
        return Err(output.error("gpg").context("listing public keys"));
    }
    Ok(public_keys(&output.stdout).into_iter().map(SentKey::from).collect())
}

impl From<ListedKey> for SentKey {
    fn from(listed: ListedKey) -> Self {
        let ListedKey { fingerprint, ownertrust, expires, subkeys, user_ids } = listed;
        // A subkey that is revoked needs no comparison.
        let subkeys = subkeys.into_iter().filter(|subkey| !subkey.is_revoked);
        let expiries = subkeys.map(|subkey| (subkey.fingerprint, subkey.expires));
        let expiries = std::iter::once((fingerprint.clone(), expires)).chain(expiries).collect();
        let user_ids = user_ids.into_iter().filter(|user_id| user_id.is_valid);
        let user_ids = user_ids.map(|user_id| (user_id.hash, user_id.text)).collect();
        Self { fingerprint, expiries, user_ids, ownertrust }
    }
}
