//! The names that git gives to tags.

/// Whether `refs/tags/NAME` is a name of a reference, and no option of a command line.
pub(super) fn is_tag_name(name: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(name, part).is_some();
    !name.is_empty()
        && !name.starts_with(b"-")
        && !name.ends_with(b".")
        && !has(b"..")
        && !has(b"@{")
        && name.iter().all(|byte| !byte.is_ascii_control() && !b" ~^:?*[\\".contains(byte))
        && name.split(|&byte| byte == b'/').all(is_component)
}

fn is_component(part: &[u8]) -> bool {
    !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_name_of_a_reference() {
        for name in ["v1", "v1.0-rc.1", "release/2026/1", "@", "ü", "a@b", "a{b"] {
            assert!(is_tag_name(name.as_bytes()), "{name}");
        }
        for name in [
            "", "-v1", ".v1", "v1.", "a..b", "a@{b", "a b", "a\tb", "a~b", "a^b", "a:b", "a?b",
            "a*b", "a[b", "a\\b", "/a", "a/", "a//b", "a/.b", "a.lock", "a.lock/b", "a\u{7f}b",
        ] {
            assert!(!is_tag_name(name.as_bytes()), "{name}");
        }
    }
}
