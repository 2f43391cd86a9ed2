//! The command lines with which git, jj, `GitButler` and others have gpg and ssh-keygen sign.
//!
//! Only what is listed here is taken for a request to sign. Anything else is for the real program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// `gpg … -bsau KEY`: a detached signature in armour of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GpgSignature {
    pub(super) key: Vec<u8>,
    /// Where the status goes.
    pub(super) status: Option<u32>,
}

/// `ssh-keygen -Y sign -n git -f KEY [FILE]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SshSignature {
    pub(super) key_file: OsString,
    /// Standard input without it.
    pub(super) file: Option<OsString>,
}

/// Options of gpg that change nothing here.
const IGNORED: [&[u8]; 4] = [b"--batch", b"--no-tty", b"--yes", b"--quiet"];

impl GpgSignature {
    pub(super) fn read(arguments: &[OsString]) -> Option<Self> {
        let (mut keys, mut status) = (Vec::new(), None);
        let (mut detached, mut armored) = (false, false);
        let mut words = arguments.iter().map(|word| word.as_bytes());
        while let Some(word) = words.next() {
            let (name, value) = split_option(word);
            match name {
                b"--detach-sign" | b"--detach-sig" if value.is_none() => detached = true,
                b"--sign" if value.is_none() => {}
                b"--armor" | b"--armour" if value.is_none() => armored = true,
                b"--local-user" => keys.push(value.or_else(|| words.next())?),
                b"--output" if value.or_else(|| words.next())? == b"-" => {}
                // For listings.
                b"--keyid-format" => drop(value.or_else(|| words.next())?),
                b"--status-fd" => status = Some(number(value.or_else(|| words.next())?)?),
                _ if IGNORED.contains(&word) => {}
                b"-" if word == b"-" && words.len() == 0 => {}
                _ if word.starts_with(b"--") => return None,
                _ => {
                    let mut letters = word.strip_prefix(b"-").filter(|rest| !rest.is_empty())?;
                    while let Some((letter, rest)) = letters.split_first() {
                        letters = rest;
                        match letter {
                            b'b' => detached = true,
                            b's' | b'q' => {}
                            b'a' => armored = true,
                            b'u' => {
                                let rest = std::mem::take(&mut letters);
                                keys.push(if rest.is_empty() { words.next()? } else { rest });
                            }
                            _ => return None,
                        }
                    }
                }
            }
        }
        // gpg makes a signature with each key; without one it has a key of its own.
        let [key] = keys[..] else { return None };
        (detached && armored && !key.is_empty()).then(|| Self { key: key.to_owned(), status })
    }
}

impl SshSignature {
    pub(super) fn read(arguments: &[OsString]) -> Option<Self> {
        let (mut action, mut namespace, mut key_file, mut file) = (None, None, None, None);
        let mut words = arguments.iter().map(|word| word.as_bytes());
        while let Some(word) = words.next() {
            let Some((letter, value)) = word.strip_prefix(b"-").and_then(<[u8]>::split_first)
            else {
                // One file; ssh-keygen signs several.
                if file.replace(word).is_some() {
                    return None;
                }
                continue;
            };
            let mut value = || if value.is_empty() { words.next() } else { Some(value) };
            match letter {
                b'Y' => action = Some(value()?),
                b'n' => namespace = Some(value()?),
                b'f' => key_file = Some(value()?),
                // The private key is in the agent.
                b'U' | b'q' if word.len() == 2 => {}
                _ => return None,
            }
        }
        if (action, namespace) != (Some(b"sign"), Some(b"git")) {
            return None;
        }
        let owned = |word: &[u8]| OsString::from_vec(word.to_owned());
        Some(Self { key_file: owned(key_file?), file: file.map(owned) })
    }
}

/// `--name=value`, or all of the word.
fn split_option(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    let equals = word.iter().position(|&byte| byte == b'=').filter(|_| word.starts_with(b"--"));
    match equals.and_then(|at| word.split_at_checked(at)) {
        Some((name, value)) => (name, value.get(1..)),
        None => (word, None),
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    OsStr::from_bytes(digits).to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect()
    }

    #[test]
    fn a_request_for_gpg_has_one_of_the_known_forms() {
        for (line, status) in [
            // git, jj, GitButler, and what is the same.
            ("--status-fd=2 -bsau KEY", Some(2)),
            ("--status-fd=2 -bsau KEY -", Some(2)),
            ("--status-fd 2 -bsau KEY", Some(2)),
            ("--status-fd=7 -bsauKEY", Some(7)),
            ("-abu KEY", None),
            ("-b -a -u KEY", None),
            ("--keyid-format=long --status-fd=2 -bsau KEY", Some(2)),
            ("--keyid-format long --output=- -abu KEY --output -", None),
            ("--detach-sign --armor --local-user KEY", None),
            ("--batch --no-tty --yes --quiet --detach-sign --sign --armor --local-user=KEY", None),
        ] {
            let expected = GpgSignature { key: b"KEY".into(), status };
            assert_eq!(GpgSignature::read(&words(line)), Some(expected), "{line}");
        }
        let latin1 = OsString::from_vec(b"J\xfc <j@x>".to_vec());
        let read = GpgSignature::read(&["-bsau".into(), latin1]).unwrap();
        assert_eq!(read.key, b"J\xfc <j@x>");
    }

    #[test]
    fn anything_else_is_for_gpg_itself() {
        for line in [
            "",
            "-",
            "--verify FILE -",
            "--keyid-format=long --status-fd=1 --verify FILE -",
            "--list-keys",
            "-bsau",
            "-bsa",
            "-bsu KEY",
            "-sau KEY",
            "-bsau KEY FILE",
            "-bsau KEY - -",
            "-bsau KEY -o FILE",
            "-bsau KEY --output=FILE",
            "-bsau KEY --output FILE",
            "-bsau KEY --output",
            "-bsau KEY --keyid-format",
            "-bsau KEY -u OTHER",
            "-ab",
            "-bsau KEY --clear-sign",
            "-bsaut KEY",
            "-bsaeu KEY",
            "--status-fd=x -bsau KEY",
            "--status-fd -bsau KEY",
            "--homedir /x -bsau KEY",
            "--detach-sign=x -au KEY",
            "--armor=x -bu KEY",
            "-bsau KEY --",
        ] {
            assert_eq!(GpgSignature::read(&words(line)), None, "{line}");
        }
        assert_eq!(GpgSignature::read(&["-bsau".into(), "".into()]), None);
    }

    #[test]
    fn a_request_for_ssh_keygen_has_one_of_the_known_forms() {
        for (line, file) in [
            ("-Y sign -n git -f KEY FILE", Some("FILE")),
            ("-Y sign -n git -f KEY -U FILE", Some("FILE")),
            ("-Ysign -ngit -fKEY -q FILE", Some("FILE")),
            ("-Y sign -f KEY -n git", None),
        ] {
            let expected = SshSignature { key_file: "KEY".into(), file: file.map(OsString::from) };
            assert_eq!(SshSignature::read(&words(line)), Some(expected), "{line}");
        }
        for line in [
            "",
            "-Y verify -n git -f FILE -I x -s FILE",
            "-Y find-principals -f FILE -s FILE",
            "-Y check-novalidate -n git -s FILE",
            "-Y sign -n file -f KEY FILE",
            "-Y sign -f KEY FILE",
            "-Y sign -n git FILE",
            "-Y sign -n git -f KEY FILE FILE",
            "-Y sign -n git -f KEY -O hashalg=sha256 FILE",
            "-Y sign -n git -f KEY -Ux FILE",
            "-Y sign -n git -f",
            "-Y",
            "-t ed25519",
        ] {
            assert_eq!(SshSignature::read(&words(line)), None, "{line}");
        }
    }
}
