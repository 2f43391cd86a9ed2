//! Bytes as text in Latin-1: each character up to U+00FF is the byte of that number.

use super::CallError;

pub(super) fn to_bytes(text: &str) -> Result<Vec<u8>, CallError> {
    text.chars()
        .map(|character| {
            u8::try_from(character).map_err(|_| CallError::NotLatin1 { code: character.into() })
        })
        .collect()
}

pub(super) fn to_text<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    pieces.into_iter().flatten().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(to_bytes(&to_text([bytes.as_slice()])), Ok(bytes));
        assert_eq!(to_bytes("a\u{100}"), Err(CallError::NotLatin1 { code: 0x100 }));
    }
}
