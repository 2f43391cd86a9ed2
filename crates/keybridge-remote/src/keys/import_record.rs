//! What keybridge has imported into the target's keyring, for `undo --purge`: keys that were not there
//! before, and ownertrust with the value that it had before. The record is a file of ours in the GnuPG
//! home that stays when a bridge ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::home::safe_path::{beside, euid, open_no_link, remove_if_exists, replace_by_rename};

/// Room for some ten thousand keys.
const MAX_SIZE: usize = 1024 * 1024;

/// The fingerprint of an OpenPGP key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Fingerprint(String);

impl FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
        if matches!(text.len(), 40 | 64) && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err("a fingerprint has 40 or 64 hexadecimal digits")
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Values of ownertrust, as gpg exports them.
pub(crate) type Ownertrust = BTreeMap<Fingerprint, u32>;

/// Reads what gpg exports.
pub(crate) fn parse_ownertrust(text: &[u8]) -> Ownertrust {
    let line = |line: &[u8]| {
        let (fingerprint, rest) = std::str::from_utf8(line).ok()?.split_once(':')?;
        let value = rest.split(':').next()?.parse().ok()?;
        Some((fingerprint.parse().ok()?, value))
    };
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

/// A value of ownertrust that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustChange {
    /// 0 if there was none.
    pub(crate) before: u32,
    pub(crate) set: u32,
}

/// The record of a GnuPG home.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportRecord {
    /// Keys that were not there before.
    pub(crate) keys: BTreeSet<Fingerprint>,
    pub(crate) trust: BTreeMap<Fingerprint, TrustChange>,
}

impl ImportRecord {
    pub(crate) fn path_in(home: &Path) -> PathBuf {
        home.join(".keybridge-imported")
    }

    /// Reads the record. Nothing is one without entries.
    pub(crate) fn read(home: &Path) -> Result<Self, Error> {
        let path = Self::path_in(home);
        let read = read_own_file(&path)
            .and_then(|json| serde_json::from_slice(&json).map_err(io::Error::other));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            read => read.map_err(|error| Error::io("read", &path, error)),
        }
    }

    /// Notes keys that were not there before an import.
    pub(crate) fn add_keys(home: &Path, new: BTreeSet<Fingerprint>) -> Result<(), Error> {
        if new.is_empty() {
            return Ok(());
        }
        let mut record = Self::read(home)?;
        record.keys.extend(new);
        record.write(home)
    }

    /// Notes ownertrust that is about to be set. The value before the first change counts.
    pub(crate) fn add_trust(
        home: &Path,
        now: &Ownertrust,
        wanted: &Ownertrust,
    ) -> Result<(), Error> {
        let mut record = Self::read(home)?;
        let mut is_changed = false;
        for (fingerprint, &set) in wanted {
            let before = now.get(fingerprint).copied().unwrap_or_default();
            if set != before && set != 0 {
                let entry = record.trust.entry(fingerprint.clone());
                entry.or_insert(TrustChange { before, set }).set = set;
                is_changed = true;
            }
        }
        if is_changed { record.write(home) } else { Ok(()) }
    }

    /// Writes the record; one without entries removes the file.
    pub(crate) fn write(&self, home: &Path) -> Result<(), Error> {
        let path = Self::path_in(home);
        let put = || {
            if *self == Self::default() {
                remove_if_exists(&beside(&path))?;
                return remove_if_exists(&path);
            }
            let json = serde_json::to_vec(self)?;
            if json.len() > MAX_SIZE {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            replace_by_rename(&path, |beside| {
                let mut options = OpenOptions::new();
                let mut file = options.write(true).create_new(true).mode(0o600).open(beside)?;
                file.write_all(&json)
            })
        };
        put().map_err(|error| Error::io("write", &path, error))
    }
}

/// Reads a file of this user's. A link there is not followed.
fn read_own_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_no_link(OpenOptions::new().read(true), path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != euid() {
        return Err(io::Error::other(format!("it is not a file of uid {}", euid())));
    }
    let mut text = Vec::new();
    file.take(MAX_SIZE as u64).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn fingerprint(digit: char) -> Fingerprint {
        digit.to_string().repeat(40).parse().unwrap()
    }

    fn trust(values: &[(char, u32)]) -> Ownertrust {
        values.iter().map(|&(digit, value)| (fingerprint(digit), value)).collect()
    }

    #[test]
    fn a_record_keeps_the_first_value_and_goes_when_it_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert_eq!(ImportRecord::read(home).unwrap(), ImportRecord::default());
        ImportRecord::add_keys(home, BTreeSet::new()).unwrap();
        ImportRecord::add_trust(home, &trust(&[('A', 6)]), &trust(&[('A', 6)])).unwrap();
        assert!(!ImportRecord::path_in(home).exists());

        ImportRecord::add_keys(home, [fingerprint('B')].into()).unwrap();
        let wanted = trust(&[('A', 6), ('B', 6), ('C', 5)]);
        ImportRecord::add_trust(home, &trust(&[('A', 4), ('C', 5)]), &wanted).unwrap();
        ImportRecord::add_trust(home, &wanted, &trust(&[('A', 5), ('B', 6)])).unwrap();
        let record = ImportRecord::read(home).unwrap();
        assert_eq!(record.keys, [fingerprint('B')].into());
        let expected = [
            (fingerprint('A'), TrustChange { before: 4, set: 5 }),
            (fingerprint('B'), TrustChange { before: 0, set: 6 }),
        ];
        assert_eq!(record.trust, expected.into());
        ImportRecord::default().write(home).unwrap();
        assert_eq!(std::fs::read_dir(home).unwrap().count(), 0);
    }

    #[test]
    fn a_link_or_a_folder_in_its_place_is_an_error_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let (path, other) = (ImportRecord::path_in(home.path()), home.path().join("other"));
        std::fs::write(&other, format!(r#"{{"keys":["{}"],"trust":{{}}}}"#, fingerprint('A')))
            .unwrap();
        symlink(&other, &path).unwrap();
        assert!(ImportRecord::read(home.path()).is_err());
        assert!(ImportRecord::add_keys(home.path(), [fingerprint('B')].into()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(ImportRecord::read(home.path()).is_err());
        assert!(path.is_dir() && other.exists());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = ImportRecord::path_in(home.path());
        let key = fingerprint('A');
        for (record, why) in [
            (r#"{"keys":["--all"],"trust":{}}"#.to_owned(), "a fingerprint has"),
            (format!(r#"{{"keys":[],"trust":{{"{key}":{{"before":1}}}}}}"#), "missing field `set`"),
            (r#"{"keys":[],"trust":{},"more":1}"#.to_owned(), "unknown field `more`"),
            (r#"{"keys":["#.to_owned(), "EOF"),
        ] {
            std::fs::write(&path, &record).unwrap();
            let error = ImportRecord::read(home.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(ImportRecord::add_keys(home.path(), [fingerprint('B')].into()).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), record);
        }
    }

    #[test]
    fn ownertrust_is_read_as_gpg_exports_it() {
        let text =
            format!("# List of\n{}:6:\n{}:4:\nrubbish\n", fingerprint('A'), fingerprint('B'));
        assert_eq!(parse_ownertrust(text.as_bytes()), trust(&[('A', 6), ('B', 4)]));
    }
}
