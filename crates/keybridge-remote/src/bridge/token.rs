//! The token that says which bridge a helper belongs to.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Few digits would be the same by chance; many have no use.
const DIGITS: RangeInclusive<usize> = 8..=64;

/// Names one bridge of one host. It is an identity, not a secret: everyone of the target's user can
/// read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeToken(String);

impl FromStr for BridgeToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err("expected 8 to 64 hexadecimal digits")
    }
}

impl fmt::Display for BridgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_hexadecimal_and_its_case_does_not_count() {
        let token: BridgeToken = "01234567abCDef".parse().unwrap();
        assert_eq!(token, "01234567ABcdEF".parse().unwrap());
        assert_eq!(token.to_string(), "01234567abcdef");
        for bad in ["", "1234567", "1234567g", "1234 5678", "+1234567", &"a".repeat(65)] {
            assert!(bad.parse::<BridgeToken>().is_err(), "{bad}");
        }
    }
}
