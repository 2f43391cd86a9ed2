//! All secret keys with what is lent of them, and the public keys that a target gets: for `doctor`.

use std::ffi::OsString;

use keybridge_proto::gate::{KeyGrip, Use};
use keybridge_proto::gpg_listing::{Record, unescape};
use keybridge_proto::inspection::{Inspection, PublicKey};

use super::choice::{self, Choice};
use super::listing::{self, Protocol, SecretKey};
use super::{Ceiling, Lending};
use crate::Result;
use crate::gnupg::Gnupg;
use crate::keys;

/// What a listing of some keys may print.
const MAX_LISTING: usize = 4 * 1024 * 1024;

/// The keys of this machine, and what a target gets.
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
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(text: &str) -> Vec<SentKey> {
    let mut keys: Vec<SentKey> = Vec::new();
    // The expiry of the key whose fingerprint comes next.
    let mut expiry = None;
    for line in text.lines() {
        let record = Record::of(line);
        let field = |number| record.field(number);
        let kind = field(1);
        if kind == "pub" {
            let ownertrust = PublicKey::ownertrust_of(field(9));
            keys.push(SentKey { ownertrust, ..SentKey::default() });
        }
        let Some(key) = keys.last_mut() else { continue };
        match kind {
            // A subkey that is revoked needs no comparison.
            "pub" | "sub" => expiry = (field(2) != "r").then(|| field(7).parse().ok()),
            "fpr" => {
                if key.fingerprint.is_empty() {
                    key.fingerprint = field(10).to_owned();
                }
                if let Some(expires) = expiry.take() {
                    key.expiries.push((field(10).to_owned(), expires));
                }
            }
            "uid" if !matches!(field(2), "r" | "i") => {
                key.user_ids.push((field(8).to_owned(), unescape(field(10))));
            }
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_are_read_with_what_can_change() {
        let keys = parse(
            "tru::1:1:0:3:1:5\n\
             pub:u:255:22:81411CFB911715FE:1794792925:1794879325::u:::cESCA::::::23::0:\n\
             fpr:::::::::B0190C2E104496E6B0458B6F81411CFB911715FE:\n\
             uid:u::::1794792925::5430::A \\x3a <a@x>::::::::::0:\n\
             uid:r::::1794792925::5431::Old <old@x>::::::::::0:\n\
             sub:u:255:22:7856B55C7DF50AE0:1794792925::::::s::::::23:\n\
             fpr:::::::::BD1A985E90C8F498DB3DB0697856B55C7DF50AE0:\n\
             sub:r:255:22:7856B55C7DF50AE1:1794792925::::::s::::::23:\n\
             fpr:::::::::BD1A985E90C8F498DB3DB0697856B55C7DF50AE1:\n",
        );
        let [key] = keys.as_slice() else { panic!("{keys:?}") };
        assert_eq!(key.fingerprint, "B0190C2E104496E6B0458B6F81411CFB911715FE");
        assert_eq!(key.ownertrust, Some(6));
        assert_eq!(key.user_ids, [("5430".to_owned(), "A : <a@x>".to_owned())]);
        let expiries: Vec<_> = key.expiries.iter().map(|(_, expires)| *expires).collect();
        assert_eq!(expiries, [Some(1_794_879_325), None]);
    }
}
