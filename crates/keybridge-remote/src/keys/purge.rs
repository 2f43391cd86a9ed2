//! Removing from the target's keyring what keybridge has imported into it, and nothing else.

use std::path::Path;

use keybridge_link::ProgramOutput;
use keybridge_proto::gpg_listing::Record;
use keybridge_proto::report::Purged;
use keybridge_proto::{last_line, printable};

use super::import::{export_ownertrust, import_ownertrust};
use super::import_record::{Fingerprint, ImportRecord, TrustChange};
use crate::error::Error;
use crate::subprocess::run;
use crate::user_files::gpg_conf;
use crate::{Gnupg, StopSignal};

/// gpg keeps ownertrust in a byte and passes over a value of 0, but not over one whose lowest byte is 0.
const NO_TRUST: u32 = 256;

/// What counts as no trust where gpg can't set that.
const UNDEFINED_TRUST: u32 = 2;

/// Removes keys that were not there before keybridge imported them, and sets ownertrust back to what it
/// was. Keys with a secret half in the home stay as they are. What can't be removed stays on record.
pub async fn purge(gnupg: &Gnupg) -> Result<Purged, Error> {
    let home = gnupg.home();
    let mut record = ImportRecord::read(home)?;
    if record == ImportRecord::default() {
        // A file without entries may be there.
        record.write(home)?;
        return Ok(Purged::default());
    }
    let before = export_ownertrust(gnupg).await?;
    let mut outcome = Purged::default();
    for key in record.keys.clone() {
        match remove_key(gnupg, &key).await? {
            KeyRemoval::Removed => {
                outcome.keys += 1;
                // gpg removes it with the key.
                let trust = record.trust.remove(&key);
                outcome.ownertrust += usize::from(trust.is_some() && before.contains_key(&key));
            }
            KeyRemoval::NotThere => {}
            KeyRemoval::Kept => {
                outcome.kept += 1;
                record.trust.remove(&key);
            }
        }
        record.keys.remove(&key);
        record.write(home)?;
    }
    outcome.ownertrust += restore_ownertrust(gnupg, &record).await?;
    ImportRecord::default().write(home)?;
    Ok(outcome)
}

/// What became of a key.
enum KeyRemoval {
    Removed,
    NotThere,
    Kept,
}

async fn remove_key(gnupg: &Gnupg, key: &Fingerprint) -> Result<KeyRemoval, Error> {
    let name = key.to_string();
    let listed = run_gpg(gnupg, &["--with-colons", "--with-keygrip", "--list-keys", &name]).await?;
    let Some(keygrips) = keygrips(&listed.stdout, key) else { return Ok(KeyRemoval::NotThere) };
    if keygrips.iter().any(|keygrip| has_secret_key(gnupg.home(), keygrip)) {
        return Ok(KeyRemoval::Kept);
    }
    // Without `--expert` gpg asks the agent for the secret key, and fails where there is none.
    let deleted = run_gpg(gnupg, &["--yes", "--expert", "--delete-keys", &name]).await?;
    if deleted.status.success() {
        return Ok(KeyRemoval::Removed);
    }
    let said = printable(last_line(&deleted.stderr)).to_string();
    Err(Error::other(format!("can't remove the public key {key}: gpg: {said}"))
        .hint(format!("remove it in the target: gpg --delete-keys {key}")))
}

/// gpg without an agent: none is needed for public keys, and none should be started for that.
async fn run_gpg(gnupg: &Gnupg, arguments: &[&str]) -> Result<ProgramOutput, Error> {
    let mut gpg = gnupg.gpg();
    gpg.args(["--batch", "--no-tty", "--agent-program", gpg_conf::NO_AGENT]).args(arguments);
    run(&mut gpg).await.map_err(|error| Error::other("can't run gpg").because(error))
}

/// The keygrips of a key and its subkeys, if the listing begins with that very key.
fn keygrips(listing: &[u8], key: &Fingerprint) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(listing);
    let field = |line: &str, kind: &str| {
        let record = Record::of(line);
        (record.field(1) == kind).then(|| record.field(10).to_owned())
    };
    let first = text.lines().find_map(|line| field(line, "fpr"))?;
    (first == key.to_string()).then(|| text.lines().filter_map(|line| field(line, "grp")).collect())
}

fn has_secret_key(home: &Path, keygrip: &str) -> bool {
    let is_keygrip = !keygrip.is_empty() && keygrip.bytes().all(|byte| byte.is_ascii_hexdigit());
    let path = home.join("private-keys-v1.d").join(format!("{keygrip}.key"));
    // What can't be looked at may be there.
    !is_keygrip || !std::fs::symlink_metadata(path).is_err_and(|error| is_not_found(&error))
}

fn is_not_found(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Sets values back that are still those that were set here; says how many.
async fn restore_ownertrust(gnupg: &Gnupg, record: &ImportRecord) -> Result<usize, Error> {
    let now = export_ownertrust(gnupg).await?;
    let is_ours = |key: &Fingerprint, change: &TrustChange| now.get(key) == Some(&change.set);
    let ours: Vec<_> = record.trust.iter().filter(|(key, change)| is_ours(key, change)).collect();
    if ours.is_empty() {
        return Ok(0);
    }
    let value = |change: &TrustChange| if change.before == 0 { NO_TRUST } else { change.before };
    set_ownertrust(gnupg, ours.iter().map(|(key, change)| (*key, value(change)))).await?;
    let now = export_ownertrust(gnupg).await?;
    let stays = |(key, change): &&(&Fingerprint, &TrustChange)| {
        change.before == 0 && now.contains_key(*key)
    };
    let left: Vec<_> = ours.iter().filter(stays).collect();
    if !left.is_empty() {
        set_ownertrust(gnupg, left.iter().map(|(key, _)| (*key, UNDEFINED_TRUST))).await?;
    }
    Ok(ours.len())
}

async fn set_ownertrust(
    gnupg: &Gnupg,
    values: impl Iterator<Item = (&Fingerprint, u32)>,
) -> Result<(), Error> {
    let lines: Vec<String> = values.map(|(key, value)| format!("{key}:{value}:\n")).collect();
    let text = lines.concat();
    // Nobody stops it.
    match import_ownertrust(gnupg, text.as_bytes(), &StopSignal::default()).await {
        None | Some((_, None)) => Ok(()),
        Some((_, Some(complaint))) => Err(Error::other(complaint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keygrips_are_those_of_the_very_key() {
        let key: Fingerprint = "A".repeat(40).parse().unwrap();
        let listing = format!(
            "tru::1:1:0:3:1:5\npub:-:255:22:AA:1:::-:::scESC:\nfpr:::::::::{key}:\n\
             grp:::::::::0123:\nuid:-::::1::X::a:\nsub:-:\nfpr:::::::::BB:\ngrp:::::::::4567:\n"
        );
        let found = keygrips(listing.as_bytes(), &key);
        assert_eq!(found, Some(vec!["0123".to_owned(), "4567".to_owned()]));
        let other = "B".repeat(40).parse().unwrap();
        assert_eq!(keygrips(listing.as_bytes(), &other), None, "the key of a subkey");
        assert_eq!(keygrips(b"", &key), None);
    }

    #[test]
    fn a_keygrip_that_is_none_counts_as_a_secret_key() {
        let home = tempfile::tempdir().unwrap();
        assert!(!has_secret_key(home.path(), "0123"));
        assert!(has_secret_key(home.path(), "../0123"));
        assert!(has_secret_key(home.path(), ""));
        std::fs::create_dir(home.path().join("private-keys-v1.d")).unwrap();
        std::fs::write(home.path().join("private-keys-v1.d/0123.key"), "").unwrap();
        assert!(has_secret_key(home.path(), "0123"));
    }
}
