//! The public keys in the target's keyring.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use keybridge_proto::gpg_listing::Record;
use keybridge_proto::inspection::{Inspection, KeyFacts, KeyStatus, PublicKey, Subkey};
use keybridge_proto::{last_line, printable};

use super::in_time;
use crate::subprocess::run_with_limit;
use crate::{Gnupg, OpenPgpKeyId};

/// Many keys with many user ids print less.
const OUTPUT_LIMIT: usize = 1024 * 1024;

/// `common.conf` has some lines.
const SETTINGS_LIMIT: u64 = 64 * 1024;

/// gpg's arguments with which it creates no file, writes none and starts nothing.
pub(super) const READ_ONLY: [&str; 7] = [
    "--batch",
    "--no-tty",
    "--no-autostart",
    "--no-auto-check-trustdb",
    "--no-random-seed-file",
    "--lock-never",
    "--no-permission-warning",
];

/// The keys, if they can't be looked for.
pub(super) fn unknown(keys: &[OpenPgpKeyId], reason: &str) -> Vec<KeyFacts> {
    each(keys, |_| KeyStatus::Unknown(reason.to_owned()))
}

/// Looks for the keys.
pub(super) async fn find(gnupg: &Gnupg, keys: &[OpenPgpKeyId]) -> Vec<KeyFacts> {
    let keyring = Keyring::of(gnupg);
    if keys.is_empty() || keyring == Keyring::Nothing {
        return each(keys, |_| KeyStatus::Missing);
    }
    match in_time(list(gnupg, keyring, keys)).await {
        Ok(found) => each(keys, |key| match found.get(&key.to_string().to_ascii_uppercase()) {
            Some(found) => KeyStatus::Present(found.clone()),
            None => KeyStatus::Missing,
        }),
        Err(reason) => unknown(keys, &format!("gpg: {reason}")),
    }
}

fn each(keys: &[OpenPgpKeyId], status: impl Fn(&OpenPgpKeyId) -> KeyStatus) -> Vec<KeyFacts> {
    keys.iter().map(|key| KeyFacts { fingerprint: key.to_string(), status: status(key) }).collect()
}

/// Where gpg has its public keys. It would create a keyring that isn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyring {
    Nothing,
    File,
    Keyboxd,
}

impl Keyring {
    fn of(gnupg: &Gnupg) -> Self {
        let at = |name: &str| gnupg.home().join(name);
        if uses_keyboxd(&at("common.conf")) {
            Self::Keyboxd
        } else if at("pubring.kbx").is_file() || at("pubring.gpg").is_file() {
            Self::File
        } else {
            Self::Nothing
        }
    }
}

/// Whether there is a keyring. gpg creates one, and its home, whatever it is asked to do.
pub(super) fn has_keyring(gnupg: &Gnupg) -> bool {
    Keyring::of(gnupg) != Keyring::Nothing
}

fn uses_keyboxd(settings: &Path) -> bool {
    let mut text = String::new();
    // A pipe in the file's place would hold us up.
    let is_read = settings.is_file()
        && File::open(settings)
            .is_ok_and(|file| file.take(SETTINGS_LIMIT).read_to_string(&mut text).is_ok());
    is_read && text.lines().any(|line| line.trim() == "use-keyboxd")
}

async fn list(
    gnupg: &Gnupg,
    keyring: Keyring,
    keys: &[OpenPgpKeyId],
) -> Result<HashMap<String, PublicKey>, String> {
    let mut gpg = gnupg.gpg();
    gpg.arg("--no-options").args(READ_ONLY).args(["--with-colons", "--status-fd", "1"]);
    if keyring == Keyring::Keyboxd {
        gpg.arg("--use-keyboxd");
    }
    // gpg would create a trust database that isn't there, and fill an empty one.
    let trust = std::fs::metadata(gnupg.home().join("trustdb.gpg"));
    if !trust.is_ok_and(|trust| trust.len() > 0) {
        gpg.args(["--trust-model", "always"]);
    }
    gpg.args(["--list-keys", "--"]).args(keys.iter().map(ToString::to_string));
    let output = run_with_limit(&mut gpg, OUTPUT_LIMIT).await.map_err(|error| error.to_string())?;
    let found = parse(&output.stdout);
    let said = last_line(&output.stderr);
    // It fails if one of them isn't there.
    if output.status.success() || !found.is_empty() || said.ends_with(b"No public key") {
        return Ok(found);
    }
    Err(printable(said.strip_prefix(b"gpg: ").unwrap_or(said)).to_string())
}

/// The keys of a listing, by their fingerprints.
fn parse(listing: &[u8]) -> HashMap<String, PublicKey> {
    let mut keys = HashMap::new();
    let mut current: Option<(String, PublicKey)> = None;
    for line in listing.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let record = Record::of(&line);
        let field = |number| record.field(number);
        match (field(1), &mut current) {
            ("pub", _) => {
                keys.extend(current.take().filter(|(fingerprint, _)| !fingerprint.is_empty()));
                let key = PublicKey {
                    ownertrust: PublicKey::ownertrust_of(field(9)),
                    expires: field(7).parse().ok(),
                    subkeys: Vec::new(),
                    user_ids: Vec::new(),
                };
                current = Some((String::new(), key));
            }
            ("fpr", Some((fingerprint, key))) => match key.subkeys.last_mut() {
                None if fingerprint.is_empty() => field(10).clone_into(fingerprint),
                Some(subkey) if subkey.fingerprint.is_empty() => {
                    field(10).clone_into(&mut subkey.fingerprint);
                }
                Some(_) | None => {}
            },
            ("sub", Some((_, key))) if key.subkeys.len() < Inspection::MOST_PARTS => {
                let (fingerprint, expires) = (String::new(), field(7).parse().ok());
                key.subkeys.push(Subkey { fingerprint, expires });
            }
            ("uid", Some((_, key))) if key.user_ids.len() < Inspection::MOST_PARTS => {
                key.user_ids.push(field(8).to_owned());
            }
            _ => {}
        }
    }
    keys.extend(current.filter(|(fingerprint, _)| !fingerprint.is_empty()));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_key_by_key() {
        let listing = b"tru::1:1:0:3:1:5\nfpr:::::::::0:\npub:r:255:22:AA:1:99::u:::sc:\n\
            fpr:::::::::A:\nuid:u::::1::HASH::T:\nsub:e:255:18:BB:1:7:::::e:\nfpr:::::::::B:\n\
            sub:u:255:18:CC:1::::::e:\nfpr:::::::::C:\npub:-:1:1:DD:1:::-:\n\xff:::\npub:::\n";
        let keys = parse(listing);
        assert_eq!(keys.len(), 1);
        let key = &keys["A"];
        assert_eq!((key.ownertrust, key.expires), (Some(6), Some(99)));
        let subkeys = [("B", Some(7)), ("C", None)]
            .map(|(fingerprint, expires)| Subkey { fingerprint: fingerprint.into(), expires });
        assert_eq!(key.subkeys, subkeys);
        assert_eq!(key.user_ids, ["HASH"]);
    }

    #[test]
    fn a_long_listing_keeps_its_beginning() {
        let many = "sub:u:255:18:B:1:7:\nfpr:::::::::B:\nuid:u::::1::HASH::T:\n".repeat(100);
        let keys = parse(format!("pub:u:1:1:A:1::::\nfpr:::::::::A:\n{many}").as_bytes());
        let key = &keys["A"];
        assert_eq!(key.subkeys.len(), Inspection::MOST_PARTS);
        assert_eq!(key.user_ids.len(), Inspection::MOST_PARTS);
    }
}
