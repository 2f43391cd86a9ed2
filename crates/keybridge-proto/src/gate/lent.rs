//! The secret keys that a target may use, and what for.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::assuan::hex_digit;

/// Where sessions learn which keys are lent now, since that can change while they last.
pub trait KeySource: fmt::Debug {
    /// The keys as they were read last.
    fn known(&self) -> Arc<LentKeys>;

    /// The keys as they are now, which may have to be read first. None of them if that fails.
    fn read(self: Rc<Self>) -> ReadingKeys;
}

/// Reads which keys are lent.
pub type ReadingKeys = Pin<Box<dyn Future<Output = Arc<LentKeys>>>>;

/// gpg-agent's name for a key pair: a hash of the public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyGrip([u8; 20]);

/// What a target may do with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// `PKSIGN`.
    pub sign: Use,
    /// `PKDECRYPT`.
    pub decrypt: Use,
}

/// How a key may be used for one purpose. Each variant includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Not at all.
    #[default]
    Denied,
    /// As gpg does it.
    OpenPgp,
    /// Also in the forms that only gpgsm needs.
    X509,
}

/// The keys that are lent, by keygrip. For a target there are no others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LentKeys {
    /// Sorted by keygrip, each once.
    keys: Vec<(KeyGrip, Rights)>,
}

impl KeyGrip {
    /// Reads the 40 hexadecimal digits that gpg-agent knows a key by.
    pub fn parse(word: &[u8]) -> Option<Self> {
        let mut bytes = [0; 20];
        let (digits, rest) = word.as_chunks::<2>();
        if digits.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(digits) {
            *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// The twenty bytes.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

impl TryFrom<String> for KeyGrip {
    type Error = &'static str;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        Self::parse(digits.as_bytes()).ok_or("expected 40 hexadecimal digits")
    }
}

impl From<KeyGrip> for String {
    fn from(keygrip: KeyGrip) -> Self {
        keygrip.to_string()
    }
}

impl fmt::Display for KeyGrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Debug for KeyGrip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Rights {
    /// Whether the key may be used at all.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

impl LentKeys {
    /// What may be done with a key, if it is lent.
    pub fn find(&self, keygrip: KeyGrip) -> Option<Rights> {
        let at = self.keys.binary_search_by_key(&keygrip, |(grip, _)| *grip).ok()?;
        self.keys.get(at).map(|(_, rights)| *rights)
    }

    /// The lent keys, in the order of their keygrips.
    pub fn keygrips(&self) -> impl ExactSizeIterator<Item = KeyGrip> {
        self.keys.iter().map(|(grip, _)| *grip)
    }

    /// How many keys are lent.
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is lent.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl FromIterator<(KeyGrip, Rights)> for LentKeys {
    /// A key that is given twice has the rights of both. One without rights isn't lent.
    fn from_iter<I: IntoIterator<Item = (KeyGrip, Rights)>>(keys: I) -> Self {
        let mut keys: Vec<_> = keys.into_iter().filter(|(_, rights)| rights.is_any()).collect();
        keys.sort_by_key(|(grip, _)| *grip);
        keys.dedup_by(|(grip, more), (kept, rights)| {
            let same = grip == kept;
            if same {
                rights.sign = rights.sign.max(more.sign);
                rights.decrypt = rights.decrypt.max(more.decrypt);
            }
            same
        });
        Self { keys }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grip(first: u8) -> KeyGrip {
        let mut bytes = [0xAB; 20];
        bytes[0] = first;
        KeyGrip(bytes)
    }

    #[test]
    fn a_keygrip_is_forty_digits_in_any_case() {
        let upper = "00FF23456789ABCDEF0123456789ABCDEF012345";
        let parsed = KeyGrip::parse(upper.as_bytes()).unwrap();
        assert_eq!(KeyGrip::parse(upper.to_lowercase().as_bytes()), Some(parsed));
        assert_eq!(parsed.to_string(), upper);
        assert_eq!(parsed.as_bytes()[..2], [0, 0xFF]);
        for bad in ["", &upper[1..], &format!("{upper}0"), &format!("{upper}00")] {
            assert_eq!(KeyGrip::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(KeyGrip::parse(&[b'g'; 40]), None);
    }

    #[test]
    fn a_key_that_comes_twice_has_the_rights_of_both() {
        let rights = |sign, decrypt| Rights { sign, decrypt };
        let lent: LentKeys = [
            (grip(2), rights(Use::OpenPgp, Use::Denied)),
            (grip(1), rights(Use::Denied, Use::X509)),
            (grip(2), rights(Use::X509, Use::Denied)),
            (grip(2), rights(Use::Denied, Use::OpenPgp)),
            (grip(4), Rights::default()),
        ]
        .into_iter()
        .collect();
        assert_eq!(lent.len(), 2);
        assert_eq!(lent.keygrips().collect::<Vec<_>>(), [grip(1), grip(2)]);
        assert_eq!(lent.find(grip(1)), Some(rights(Use::Denied, Use::X509)));
        assert_eq!(lent.find(grip(2)), Some(rights(Use::X509, Use::OpenPgp)));
        assert_eq!(lent.find(grip(4)), None);
    }
}
