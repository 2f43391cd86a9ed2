//! The key that git should sign with: named by the host, checked here.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use keybridge_proto::Lane;

/// A key ID has 16 digits, the longest fingerprint 64.
const DIGITS: RangeInclusive<usize> = 16..=64;

/// The largest keys that there are stay below.
const MAX_KEY: usize = 64 * 1024;

/// With which kind of key, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitSigning {
    /// An OpenPGP key, over the gpg lane.
    Gpg(OpenPgpKeyId),
    /// An SSH key, over the ssh lane.
    Ssh(SshPublicKey),
    /// Whatever key the user's git is set up with, and with the host's help only in a sandbox.
    Sandboxes,
}

impl GitSigning {
    /// The lane that it needs.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Gpg(_) => Lane::Gpg,
            Self::Ssh(_) => Lane::Ssh,
            Self::Sandboxes => Lane::Git,
        }
    }
}

impl FromStr for GitSigning {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("gpg", key)) => key.parse().map(Self::Gpg),
            Some(("ssh", key)) => key.parse().map(Self::Ssh),
            None if text == "sandboxes" => Ok(Self::Sandboxes),
            Some(_) | None => Err("expected gpg=FINGERPRINT, ssh=PUBLICKEY or sandboxes"),
        }
    }
}

/// The fingerprint or key ID of an OpenPGP key, with a `!` if no other one of its subkeys will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPgpKeyId(String);

impl FromStr for OpenPgpKeyId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_suffix('!').unwrap_or(text);
        if DIGITS.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(text.to_owned()));
        }
        Err("expected a fingerprint of 16 to 64 hexadecimal digits")
    }
}

impl fmt::Display for OpenPgpKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An SSH public key as in `id_ed25519.pub`: its type and the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPublicKey(String);

impl FromStr for SshPublicKey {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a line of an SSH public key, TYPE BASE64 COMMENT";
        let mut words = line.split(' ');
        let (kind, key) = words.next().zip(words.next()).ok_or(EXPECTED)?;
        let is_kind = |byte: u8| byte.is_ascii_alphanumeric() || b"-@.".contains(&byte);
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let whole = !kind.is_empty() && !key.is_empty() && line.len() <= MAX_KEY;
        if whole && kind.bytes().all(is_kind) && key.bytes().all(is_base64) {
            return Ok(Self(format!("{kind} {key}")));
        }
        Err(EXPECTED)
    }
}

impl fmt::Display for SshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_with_its_lane() {
        let gpg: GitSigning = "gpg=0123456789ABCDEF0123456789ABCDEF01234567!".parse().unwrap();
        assert_eq!(gpg.lane(), Lane::Gpg);
        let ssh: GitSigning = "ssh=ssh-ed25519 AAAA+/== a comment".parse().unwrap();
        assert_eq!(ssh, GitSigning::Ssh(SshPublicKey("ssh-ed25519 AAAA+/==".into())));
        for bad in [
            "gpg",
            "gpg=",
            "gpg=0123",
            "gpg=alice@example.org",
            "gpg=0123456789abcdef!!",
            "ssh=",
            "ssh=ssh-ed25519",
            "ssh=ssh-ed25519 ",
            "ssh= AAAA",
            "ssh=ssh-ed25519 AA\"AA",
            "ssh=ssh-ed25519 AAAA\n[core]",
            "x509=1",
        ] {
            assert!(bad.parse::<GitSigning>().is_err(), "{bad}");
        }
    }
}
