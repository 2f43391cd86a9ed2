//! Which key pairs gpg-agent uses for ssh.

use std::collections::HashSet;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use keybridge_proto::gate::KeyGrip;

use crate::{Error, Result};

/// The list of them, in GnuPG's home; from 2.4 on the key files say it.
pub(super) const SSHCONTROL: &str = "sshcontrol";

/// The folder of the key files, in GnuPG's home.
pub(super) const KEY_FILES: &str = "private-keys-v1.d";

/// The most of a key file that is read.
const MAX_KEY_FILE: u64 = 256 * 1024;

/// Those of these key pairs that are used for ssh.
pub(super) fn find(
    home: &Path,
    keygrips: impl Iterator<Item = KeyGrip>,
) -> Result<HashSet<KeyGrip>> {
    let control = home.join(SSHCONTROL);
    let mut found = match std::fs::read(&control) {
        Ok(text) => parse_control(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => HashSet::new(),
        Err(error) => return Err(failed(&control, error)),
    };
    for keygrip in keygrips {
        let path = home.join(KEY_FILES).join(format!("{keygrip}.key"));
        match File::open(&path).and_then(says_ssh) {
            Ok(true) => drop(found.insert(keygrip)),
            Ok(false) => {}
            // A key on a card may have none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Ok(found)
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::failed(path.display().to_string()).caused_by(error)
}

/// A keygrip begins each line, after `!` if the key is disabled.
fn parse_control(text: &[u8]) -> HashSet<KeyGrip> {
    let keygrip = |line: &[u8]| {
        let line = line.trim_ascii();
        let line = line.strip_prefix(b"!").unwrap_or(line).trim_ascii_start();
        KeyGrip::parse(line.split(u8::is_ascii_whitespace).next()?)
    };
    text.split(|&byte| byte == b'\n').filter_map(keygrip).collect()
}

/// Whether a key file has the field `Use-for-ssh`.
fn says_ssh(file: impl Read) -> io::Result<bool> {
    let mut lines = BufReader::new(file.take(MAX_KEY_FILE));
    let (mut line, mut found) = (Vec::new(), false);
    while !found && lines.read_until(b'\n', &mut line)? > 0 {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        found = name.eq_ignore_ascii_case(b"use-for-ssh");
        // The secret key may be in the clear.
        line.fill(0);
        line.clear();
    }
    black_box(&line);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_for_ssh_are_found_in_the_list_and_in_their_files() {
        let home = tempfile::tempdir().unwrap();
        let [listed, disabled, marked, other] = ["1", "2", "3", "A"].map(|digit| {
            let digits = digit.repeat(40);
            KeyGrip::parse(digits.as_bytes()).unwrap()
        });
        let find = || find(home.path(), [marked, other].into_iter());
        assert!(find().unwrap().is_empty(), "neither is there");
        let control = format!("# {other} 0\n  {listed} 0 confirm\n! {disabled} 600\n\n!\nx\n");
        std::fs::write(home.path().join(SSHCONTROL), control).unwrap();
        let files = home.path().join(KEY_FILES);
        std::fs::create_dir(&files).unwrap();
        let write = |keygrip: KeyGrip, text: &str| {
            std::fs::write(files.join(format!("{keygrip}.key")), text).unwrap();
        };
        write(
            marked,
            "Created: 20261119T000000\nKey: (private-key\n (ecc\n ))\nuse-for-SSH: yes\n",
        );
        write(other, "Key: (private-key\n Use-for-ssh: yes\n )\nLabel: Use-for-ssh:\n");
        assert_eq!(find().unwrap(), HashSet::from([listed, disabled, marked]));
        std::fs::remove_file(home.path().join(SSHCONTROL)).unwrap();
        std::fs::create_dir(home.path().join(SSHCONTROL)).unwrap();
        assert!(find().is_err(), "what can't be read lends nothing");
    }
}
