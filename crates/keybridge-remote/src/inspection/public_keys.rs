//! The public keys in the target's keyring.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use keybridge_proto::gpg_listing::{ListedKey, ListedSubkey, public_keys};
use keybridge_proto::inspection::{KeyFacts, KeyStatus, PublicKey, Subkey};
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
    let found: HashMap<_, _> = public_keys(&output.stdout).into_iter().map(public_key).collect();
    let said = last_line(&output.stderr);
    // It fails if one of them isn't there.
    if output.status.success() || !found.is_empty() || said.ends_with(b"No public key") {
        return Ok(found);
    }
    Err(printable(said.strip_prefix(b"gpg: ").unwrap_or(said)).to_string())
}

fn public_key(listed: ListedKey) -> (String, PublicKey) {
    let ListedKey { fingerprint, ownertrust, expires, subkeys, user_ids } = listed;
    let subkey = |ListedSubkey { fingerprint, expires, .. }| Subkey { fingerprint, expires };
    let key = PublicKey {
        ownertrust,
        expires,
        subkeys: subkeys.into_iter().map(subkey).collect(),
        user_ids: user_ids.into_iter().map(|user_id| user_id.hash).collect(),
    };
    (fingerprint, key)
}
