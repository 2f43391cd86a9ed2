//! Public keys of the host, and the ownertrust of those keys, for a target.

use std::collections::HashSet;
use std::convert::Infallible;
use std::ffi::OsString;
use std::str::FromStr;

use crate::gnupg::Gnupg;
use crate::{Error, Result};
use keybridge_proto::gpg_listing::{Record, unescape};
use keybridge_proto::printable;

/// The largest export: thousands of keys, and still small enough to hold in memory.
pub(crate) const MAX_EXPORT: usize = 64 * 1024 * 1024;

/// What a listing may print; a key takes about a kilobyte, one with many signatures no more.
const MAX_LISTING: usize = 64 * 1024 * 1024;

/// How many keys one call of gpg is given, so that its arguments stay well below the system's bound.
const KEYS_PER_CALL: usize = 1000;

/// Which keys a target gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeyFilter {
    /// Those whose secret half the host has.
    #[default]
    Pairs,
    /// All of them.
    All,
    /// Those that these words name, in any way that gpg understands: fingerprints, addresses.
    List(Vec<String>),
}

/// An export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PublicKeys {
    /// The keys, as OpenPGP packets or in armour.
    pub export: Vec<u8>,
    /// Their ownertrust, as `gpg --import-ownertrust` reads it.
    pub ownertrust: Vec<u8>,
    /// What is in the export.
    pub keys: Vec<KeyInfo>,
    /// What was asked for and isn't there.
    pub warnings: Vec<String>,
}

/// One key of an export.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyInfo {
    /// The fingerprint of the primary key.
    pub fingerprint: String,
    /// The first user id; the owner of the key chose the text.
    pub user_id: String,
}

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OpenPGP packets.
    Binary,
    /// Text.
    Armored,
}

impl FromStr for KeyFilter {
    type Err = Infallible;

    /// `pairs`, `all`, or a list with commas.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "pairs" => Self::Pairs,
            "all" => Self::All,
            list => Self::of_words(list.split(',')),
        })
    }
}

impl KeyFilter {
    /// A list of these words, without blank ones.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let words = words.into_iter().map(str::trim).filter(|word| !word.is_empty());
        Self::List(words.map(str::to_owned).collect())
    }
}

/// Exports the keys that a filter names. If there are none, the export is empty.
pub async fn export(gnupg: &Gnupg, filter: &KeyFilter, form: Form) -> Result<PublicKeys> {
    export_allowed(gnupg, filter, &KeyFilter::All, form).await
}

/// Exports the keys that one filter names, of those that another one allows.
pub(crate) async fn export_allowed(
    gnupg: &Gnupg,
    filter: &KeyFilter,
    allowed: &KeyFilter,
    form: Form,
) -> Result<PublicKeys> {
    let mut found = find(gnupg, filter).await?;
    if *allowed != KeyFilter::All && allowed != filter {
        let allowed = find(gnupg, allowed).await?.keys;
        let allowed: HashSet<String> = allowed.into_iter().map(|key| key.fingerprint).collect();
        let asked = found.keys.len();
        found.keys.retain(|key| allowed.contains(&key.fingerprint));
        if found.keys.len() < asked {
            let stay = match asked - found.keys.len() {
                1 => "1 key isn't".to_owned(),
                count => format!("{count} keys aren't"),
            };
            found.warnings.push(format!("{stay} sent: the setting keys doesn't allow it"));
        }
    }
    // gpg would export all keys if it were given none; chunks are never empty.
    for keys in found.keys.chunks(KEYS_PER_CALL) {
        let room = MAX_EXPORT.saturating_sub(found.export.len());
        found.export.extend(export_listed(gnupg, keys, form, room).await?);
    }
    if !found.keys.is_empty() {
        let fingerprints = found.keys.iter().map(|key| key.fingerprint.clone()).collect();
        found.ownertrust = ownertrust(gnupg, &fingerprints).await?;
    }
    Ok(found)
}

/// The keys that a filter names, each once, and nothing of an export yet.
pub(crate) async fn find(gnupg: &Gnupg, filter: &KeyFilter) -> Result<PublicKeys> {
    let mut found = PublicKeys::default();
    match filter {
        KeyFilter::Pairs => found.keys = list(gnupg, "--list-secret-keys", None).await?,
        KeyFilter::All => found.keys = list(gnupg, "--list-keys", None).await?,
        KeyFilter::List(words) => {
            for word in words {
                let keys = list(gnupg, "--list-keys", Some(word)).await?;
                if keys.is_empty() {
                    found.warnings.push(format!("no public key matches {}", printable(word)));
                }
                found.keys.extend(keys);
            }
        }
    }
    let mut seen = HashSet::new();
    found.keys.retain(|key| seen.insert(key.fingerprint.clone()));
    Ok(found)
}

/// The error for words that name no public key: it lists what there is.
pub(crate) async fn nothing_matches(gnupg: &Gnupg, words: &str) -> Error {
    let error = Error::failed(format!("no public key matches {}", printable(words)));
    let all = list(gnupg, "--list-keys", None).await.unwrap_or_default();
    let shown = all.iter().map(|key| format!("{} {}", key.fingerprint, printable(&key.user_id)));
    error.listing(shown.collect(), "gpg -k")
}

async fn list(gnupg: &Gnupg, command: &str, word: Option<&str>) -> Result<Vec<KeyInfo>> {
    let mut arguments: Vec<OsString> =
        ["--with-colons", "--fixed-list-mode", command, "--"].map(OsString::from).into();
    arguments.extend(word.map(OsString::from));
    let output = gnupg.gpg(&arguments, MAX_LISTING).await?;
    let keys = parse_listing(&output.stdout);
    // A word that names no key makes gpg fail, and so does a home that can't be read.
    if output.status.success() || word.is_some() {
        Ok(keys)
    } else {
        Err(output.error("gpg").context("listing keys"))
    }
}

async fn export_listed(
    gnupg: &Gnupg,
    keys: &[KeyInfo],
    form: Form,
    room: usize,
) -> Result<Vec<u8>> {
    let armor = match form {
        Form::Binary => "--no-armor",
        Form::Armored => "--armor",
    };
    let mut arguments: Vec<OsString> =
        [armor, "--output", "-", "--export", "--"].map(OsString::from).into();
    arguments.extend(keys.iter().map(|key| OsString::from(&key.fingerprint)));
    let output = gnupg.gpg(&arguments, room).await.map_err(|error| {
        error
            .context(format!("exporting {} keys (at most {MAX_EXPORT} bytes)", keys.len()))
            .hint("name fewer keys, or use --keys pairs")
    })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(output.error("gpg").context("exporting keys"))
    }
}

/// The ownertrust of these fingerprints only: that of other keys is private.
async fn ownertrust(gnupg: &Gnupg, fingerprints: &HashSet<String>) -> Result<Vec<u8>> {
    let output = gnupg.gpg(&["--export-ownertrust".into()], MAX_LISTING).await?;
    if !output.status.success() {
        return Err(output.error("gpg").context("exporting ownertrust"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut kept = String::new();
    for line in text.lines() {
        if line.split(':').next().is_some_and(|word| fingerprints.contains(word)) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    Ok(kept.into_bytes())
}

/// Reads a listing with colons: the first `fpr` after each `pub` or `sec`, and its first `uid`.
fn parse_listing(listing: &[u8]) -> Vec<KeyInfo> {
    let mut keys: Vec<KeyInfo> = Vec::new();
    let mut fingerprint_is_due = false;
    for line in String::from_utf8_lossy(listing).lines() {
        let record = Record::of(line);
        // Of `fpr` and `uid` records alike the tenth field says what they are about.
        let value = record.field(10);
        match record.field(1) {
            "pub" | "sec" => fingerprint_is_due = true,
            "fpr" if fingerprint_is_due && is_fingerprint(value) => {
                fingerprint_is_due = false;
                keys.push(KeyInfo { fingerprint: value.to_owned(), user_id: String::new() });
            }
            "uid" => {
                if let Some(key) = keys.last_mut().filter(|key| key.user_id.is_empty()) {
                    key.user_id = unescape(value);
                }
            }
            _ => {}
        }
    }
    keys
}

fn is_fingerprint(word: &str) -> bool {
    word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl PublicKeys {
    /// The size of the ownertrust, as the head of a series of keys carries it.
    pub(crate) fn ownertrust_size(&self) -> Result<u32> {
        u32::try_from(self.ownertrust.len())
            .map_err(|_| Error::failed("the ownertrust is too large to send"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_words_or_lists() {
        for (text, filter) in [
            ("pairs", KeyFilter::Pairs),
            ("all", KeyFilter::All),
            ("ABCD", KeyFilter::List(vec!["ABCD".into()])),
            ("a@b, --help,,-a", KeyFilter::List(vec!["a@b".into(), "--help".into(), "-a".into()])),
            ("", KeyFilter::List(vec![])),
        ] {
            assert_eq!(text.parse(), Ok(filter), "{text}");
        }
    }

    #[test]
    fn a_listing_is_read_by_primary_keys() {
        let listing = b"tru::1:1:0:3:1:5\n\
            sec:u:255:22:1111:0:::u:::scESC:::+:::23::0:\n\
            fpr:::::::::0123456789ABCDEF0123456789ABCDEF01234567:\n\
            grp:::::::::AA:\n\
            uid:u::::1::H::A \\x3a B <a@b>::::::::::0:\n\
            uid:u::::1::H::second::::::::::0:\n\
            ssb:u:255:18:2222:1::::::e:::+:::23:\n\
            fpr:::::::::FFFFFFFFFFFFFFFF0123456789ABCDEF01234567:\n";
        assert_eq!(
            parse_listing(listing),
            [KeyInfo {
                fingerprint: "0123456789ABCDEF0123456789ABCDEF01234567".into(),
                user_id: "A : B <a@b>".into()
            }]
        );
        assert_eq!(parse_listing(b"fpr:::::::::x:\nsec\nfpr:::::::::--help:\n\xff:"), []);
    }
}
