//! Percent escapes of `D` data.

/// Appends `data` escaped for a `D` line: `%`, CR and LF are escaped, other bytes are unchanged.
pub fn escape_into(line: &mut Vec<u8>, data: &[u8]) {
    for &byte in data {
        match byte {
            b'%' => line.extend_from_slice(b"%25"),
            b'\r' => line.extend_from_slice(b"%0D"),
            b'\n' => line.extend_from_slice(b"%0A"),
            _ => line.push(byte),
        }
    }
}

/// A `%` without two hexadecimal digits after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected two hexadecimal digits after the % at byte {at}, got something else")]
pub struct BadEscape {
    /// The position of the `%`.
    pub at: usize,
}

/// Decodes escaped text.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, BadEscape> {
    let mut data = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            data.push(byte);
            continue;
        }
        let bad = BadEscape { at: text.len() - tail.len() - 1 };
        let (&[high, low], tail) = tail.split_first_chunk().ok_or(bad)?;
        let value = hex_digit(high).zip(hex_digit(low)).map(|(high, low)| high << 4 | low);
        data.push(value.ok_or(bad)?);
        rest = tail;
    }
    Ok(data)
}

pub(crate) const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_percent_and_line_ends_are_escaped() {
        let mut line = b"D ".to_vec();
        escape_into(&mut line, b"100%\r\n\0\xff END");
        assert_eq!(line, b"D 100%25%0D%0A\0\xff END");
    }

    #[test]
    fn a_broken_escape_is_named_by_its_place() {
        for (text, at) in [(&b"ab%"[..], 2), (b"%0", 0), (b"a%zz", 1), (b"%41%4g", 3)] {
            assert_eq!(unescape(text), Err(BadEscape { at }), "{text:?}");
        }
        assert_eq!(unescape(b"%41%6a+").unwrap(), b"Aj+");
    }
}
