//! Who made a commit or a tag, and when.

/// The author or the committer of a commit, or the tagger of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The name, in the encoding of the commit.
    pub name: &'a [u8],
    /// The address, as it is written.
    pub email: &'a [u8],
    /// The seconds since 1970.
    pub time: i64,
    /// How far its clock was ahead of UTC, as it is written: `+0200`.
    pub zone: &'a [u8],
}

impl<'a> Identity<'a> {
    /// Reads `NAME <EMAIL> SECONDS ZONE`, in the one form in which git writes it.
    pub(super) fn read(value: &'a [u8]) -> Option<Self> {
        let (name, rest) = split_at(value, b" <")?;
        let (email, rest) = split_at(rest, b"> ")?;
        let (time, zone) = split_at(rest, b" ")?;
        let is_plain =
            |text: &[u8]| !text.iter().any(|byte| b"<>".contains(byte)) && is_trimmed(text);
        let is_whole = is_plain(name) && is_plain(email) && is_zone(zone);
        is_whole.then_some(())?;
        Some(Self { name, email, time: read_time(time)?, zone })
    }
}

/// Git strips names and addresses before it writes them. Some readers do so afterwards.
fn is_trimmed(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    !text.starts_with(is_stripped) && !text.ends_with(is_stripped)
}

fn is_stripped(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control()
}

/// What is before the first occurrence of `separator`, and what is after it.
fn split_at<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

/// Digits without a leading zero.
fn read_time(digits: &[u8]) -> Option<i64> {
    let is_number = match digits {
        [b'0', _, ..] => false,
        _ => digits.iter().all(u8::is_ascii_digit),
    };
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

fn is_zone(zone: &[u8]) -> bool {
    match zone {
        [b'+' | b'-', digits @ ..] => digits.len() == 4 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_one_form() {
        let read = Identity::read(b"J\xfcrgen <j@x> 1700000000 -0130").unwrap();
        let expected =
            Identity { name: b"J\xfcrgen", email: b"j@x", time: 1_700_000_000, zone: b"-0130" };
        assert_eq!(read, expected);
        let most = format!("a <> {} +0000", i64::MAX);
        assert_eq!(Identity::read(most.as_bytes()).unwrap().time, i64::MAX);
        assert_eq!(Identity::read(b"a <> 0 +0000").unwrap().time, 0);
        for wrong in [
            "",
            "a",
            "<a@b> 1 +0000",
            "a<a@b> 1 +0000",
            "a <a@b>1 +0000",
            "a <a@b> +0000",
            "a <a@b>  +0000",
            "a <a@b> 01 +0000",
            "a <a@b> -1 +0000",
            "a <a@b> +1 +0000",
            "a <a@b> 1",
            "a <a@b> 1 ",
            "a <a@b> 1 0000",
            "a <a@b> 1 +000",
            "a <a@b> 1 +00000",
            "a <a@b> 1 +0000 ",
            "a <a@b> 9223372036854775808 +0000",
            "a <a<b> 1 +0000",
            "a> <a@b> 1 +0000",
            "a <a@b> <c@d> 1 +0000",
            "a  <a@b> 1 +0000",
            "\ta <a@b> 1 +0000",
            "a\u{a0} <a@b> 1 +0000",
            "a <a@b > 1 +0000",
            "a <\u{1b}a@b> 1 +0000",
        ] {
            assert_eq!(Identity::read(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
