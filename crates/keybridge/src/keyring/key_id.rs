//! The id of an OpenPGP key as a person writes it, also in git's settings.

use std::fmt;

/// The end of a fingerprint, or all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyId {
    /// In upper case.
    digits: String,
    /// A `!` follows: no other key of the same block will do.
    pub(crate) is_exact: bool,
}

/// A shorter id fits too many keys for one to be lent by it.
const LONG: usize = 16;

impl KeyId {
    /// Reads an id or a fingerprint, in groups of digits or not.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = text.strip_suffix('!').unwrap_or(text);
        let digits = id.strip_prefix("0x").unwrap_or(id).replace(' ', "").to_ascii_uppercase();
        let is_id =
            (8..=64).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self { digits, is_exact: text.ends_with('!') })
    }

    /// The same for an id that names one key.
    pub(crate) fn parse_long(text: &str) -> Option<Self> {
        Self::parse(text).filter(|id| id.digits.len() >= LONG)
    }

    /// Whether a key with this fingerprint has it.
    pub(crate) fn is_of(&self, fingerprint: &str) -> bool {
        fingerprint.ends_with(&self.digits)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.digits)?;
        if self.is_exact { f.write_str("!") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_8_to_64_digits_however_it_is_written() {
        for (text, read, is_long) in [
            ("0x81411cfb911715fe", Some("81411CFB911715FE"), true),
            ("8141 1CFB 9117 15FE!", Some("81411CFB911715FE!"), true),
            ("911715fe", Some("911715FE"), false),
            ("911715f", None, false),
            ("lab@x", None, false),
            ("!", None, false),
            ("", None, false),
        ] {
            assert_eq!(KeyId::parse(text).map(|id| id.to_string()).as_deref(), read, "{text}");
            assert_eq!(KeyId::parse_long(text).is_some(), is_long, "{text}");
        }
        assert!(KeyId::parse(&"A".repeat(65)).is_none());
    }

    #[test]
    fn an_id_is_the_end_of_a_fingerprint() {
        let id = KeyId::parse("0x81411cfb911715fe").unwrap();
        assert!(id.is_of("B0190C2E104496E6B0458B6F81411CFB911715FE"));
        assert!(!id.is_of("B0190C2E104496E6B0458B6F81411CFB911715FF"));
    }
}
