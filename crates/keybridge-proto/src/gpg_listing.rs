//! Lines of gpg's listings with colons, on either machine.

/// One line: fields that are counted from 1, as GnuPG's documentation has them.
pub struct Record<'a>(Vec<&'a str>);

impl<'a> Record<'a> {
    /// Splits a line.
    pub fn of(line: &'a str) -> Self {
        Self(line.split(':').collect())
    }

    /// A field; one that is missing is empty.
    pub fn field(&self, number: usize) -> &'a str {
        number.checked_sub(1).and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }
}

/// Undoes the `\x3a` of a text.
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after
            .strip_prefix(b"x")
            .and_then(|digits| digits.split_at_checked(2))
            .filter(|_| first == b'\\')
            .and_then(|(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, after))
            });
        let (byte, after) = escaped.unwrap_or((first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_1_and_may_be_missing() {
        let record = Record::of("uid:u::A \\x3a B");
        let fields = [0, 1, 2, 3, 4, 5].map(|number| record.field(number));
        assert_eq!(fields, ["", "uid", "u", "", "A \\x3a B", ""]);
        assert_eq!(unescape(record.field(4)), "A : B");
        assert_eq!(unescape("\\x3 \\xzz \\xc3\\xbc\\"), "\\x3 \\xzz ü\\");
    }
}
