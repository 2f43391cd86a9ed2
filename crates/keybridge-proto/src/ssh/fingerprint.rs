//! Fingerprints of public keys, the same for a key and its certificates.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::wire::{Fields, Lack};

/// The prefix of a fingerprint in text.
const PREFIX: &str = "SHA256:";

/// The longest nonce of a certificate that is accepted; OpenSSH's have 32 bytes. gpg-agent reads this
/// field as a certificate of its own, so a longer one could hide another key there.
const MAX_NONCE: usize = 64;

/// The types of certificates: their name, that of the key inside, and how many fields the key has.
const CERTIFICATES: [(&[u8], &[u8], usize); 8] = [
    (b"ssh-rsa-cert-v01@openssh.com", b"ssh-rsa", 2),
    (b"ssh-dss-cert-v01@openssh.com", b"ssh-dss", 4),
    (b"ssh-ed25519-cert-v01@openssh.com", b"ssh-ed25519", 1),
    (b"ecdsa-sha2-nistp256-cert-v01@openssh.com", b"ecdsa-sha2-nistp256", 2),
    (b"ecdsa-sha2-nistp384-cert-v01@openssh.com", b"ecdsa-sha2-nistp384", 2),
    (b"ecdsa-sha2-nistp521-cert-v01@openssh.com", b"ecdsa-sha2-nistp521", 2),
    (b"sk-ssh-ed25519-cert-v01@openssh.com", b"sk-ssh-ed25519@openssh.com", 2),
    (b"sk-ecdsa-sha2-nistp256-cert-v01@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com", 3),
];

/// The SHA-256 hash of a public key. A certificate has that of its key, as in `ssh-add -l`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

/// Text that isn't a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected SHA256: and 43 characters of base64, as in `ssh-add -l`")]
pub struct NoFingerprint;

impl Fingerprint {
    /// The fingerprint of a public key in wire format. `None` if it is an invalid certificate.
    pub fn of(key: &[u8]) -> Option<Self> {
        match KeyInside::of(key).ok()? {
            None => Some(Self(Sha256::digest(key).into())),
            Some(KeyInside { kind, parameters }) => {
                let length = u32::try_from(kind.len()).ok()?.to_be_bytes();
                let hash = Sha256::new().chain_update(length).chain_update(kind);
                Some(Self(hash.chain_update(parameters).finalize().into()))
            }
        }
    }

    /// Whether a text looks like a fingerprint.
    pub(super) fn is_meant_by(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

/// The key in a certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyInside<'a> {
    /// Its type.
    pub(super) kind: &'static [u8],
    /// The fields that follow the type.
    pub(super) parameters: &'a [u8],
}

impl<'a> KeyInside<'a> {
    /// Parses a public key; `None` if it isn't a certificate.
    pub(super) fn of(key: &'a [u8]) -> Result<Option<Self>, Lack> {
        let mut fields = Fields::new(key, key.len());
        let name = fields.string().unwrap_or_default();
        let known = CERTIFICATES.iter().find(|(certificate, _, _)| *certificate == name);
        let Some((_, kind, count)) = known else { return Ok(None) };
        let at = |fields: &Fields<'_>| key.len() - fields.left();
        if fields.string()?.len() > MAX_NONCE {
            return Err(Lack::Malformed);
        }
        let start = at(&fields);
        for _ in 0..*count {
            fields.string()?;
        }
        let parameters = key.get(start..at(&fields)).ok_or(Lack::Malformed)?;
        Ok(Some(Self { kind, parameters }))
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let digits = text.strip_prefix(PREFIX).ok_or(NoFingerprint)?;
        let bytes = STANDARD_NO_PAD.decode(digits.trim_end_matches('=')).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(NoFingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NoFingerprint;

    fn try_from(text: String) -> Result<Self, NoFingerprint> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    fn blob(fields: &[&[u8]]) -> Vec<u8> {
        let mut blob = Vec::new();
        for field in fields {
            put_string(&mut blob, field);
        }
        blob
    }

    #[test]
    fn a_fingerprint_is_text_and_back() {
        let key = blob(&[b"ssh-ed25519", &[7; 32]]);
        let fingerprint = Fingerprint::of(&key).unwrap();
        let text = fingerprint.to_string();
        assert!(text.starts_with("SHA256:") && text.len() == 50, "{text}");
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(format!("{text}=").parse(), Ok(fingerprint));
        for text in ["", "SHA256:", "SHA256:*", "MD5:aa", &text[1..], &text[..49]] {
            assert_eq!(text.parse::<Fingerprint>(), Err(NoFingerprint), "{text}");
        }
    }

    #[test]
    fn a_certificate_has_the_fingerprint_of_its_key() {
        let parameters: [&[u8]; 4] = [&[1; 3], &[2; 9], &[3; 5], &[4; 7]];
        for (certificate, plain, count) in CERTIFICATES {
            let key = [&[plain], &parameters[..count]].concat();
            let nonce: &[u8] = &[9; 32];
            let rest: [&[u8]; 2] = [b"\0\0\0\0\0\0\0\x01", b"id"];
            let whole = blob(&[&[certificate, nonce], &parameters[..count], &rest].concat());
            assert_eq!(Fingerprint::of(&whole), Fingerprint::of(&blob(&key)));
            let short = &whole[..4 + certificate.len() + 4 + nonce.len() + 4];
            assert_eq!(Fingerprint::of(short), None);
        }
    }

    #[test]
    fn a_certificate_with_a_certificate_for_a_nonce_is_nothing() {
        let name: &[u8] = b"ssh-ed25519-cert-v01@openssh.com";
        let hidden = blob(&[name, b"", &[5; 32]]);
        assert_eq!(Fingerprint::of(&blob(&[name, &hidden, &[7; 32]])), None);
    }

    #[test]
    fn what_is_no_key_has_its_own_fingerprint() {
        let all: Vec<_> = [&b""[..], b"x", b"\0\0\0\x09short", b"\0\0\0\x01x"]
            .iter()
            .map(|bytes| Fingerprint::of(bytes).unwrap())
            .collect();
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])));
    }
}
