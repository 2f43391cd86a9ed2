//! Whether a caller's version is compatible with ours.

use super::CallError;

/// The result of comparing a caller's version with ours.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct VersionCheck {
    /// The version of this program.
    pub version: &'static str,
    /// Whether the two are compatible: as in Semantic Versioning, the first number that isn't zero has
    /// to be the same.
    pub compatible: bool,
}

pub(super) fn check(version: &str) -> Result<VersionCheck, CallError> {
    let ours = env!("CARGO_PKG_VERSION");
    let theirs = significant(version).ok_or(CallError::MalformedVersion)?;
    Ok(VersionCheck { version: ours, compatible: significant(ours) == Some(theirs) })
}

/// The numbers up to the first that isn't zero. What follows `-` or `+` doesn't count.
fn significant(version: &str) -> Option<[u32; 3]> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = numbers
        .split('.')
        .map(|part| part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit())));
    let [major, minor, patch] = [parts.next()??, parts.next()??, parts.next()??];
    if parts.next().is_some() {
        return None;
    }
    Some(match (major, minor) {
        (0, 0) => [0, 0, patch],
        (0, minor) => [0, minor, 0],
        (major, _) => [major, 0, 0],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_that_is_not_zero_decides() {
        for (one, other, same) in [
            ("0.1.0", "0.1.9", true),
            ("0.1.0", "0.2.0", false),
            ("1.2.3", "1.9.0-beta+7", true),
            ("1.0.0", "2.0.0", false),
            ("0.0.1", "0.0.2", false),
        ] {
            assert_eq!(significant(one).unwrap() == significant(other).unwrap(), same, "{other}");
        }
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c", "+1.2.3", "1.2.-3", "99999999999.0.0"] {
            assert_eq!(significant(bad), None, "{bad}");
        }
    }

    #[test]
    fn our_own_version_is_compatible() {
        let check = check(env!("CARGO_PKG_VERSION")).unwrap();
        assert!(check.compatible);
    }
}
