//! Words of shells' command lines.

use std::fmt::Write;

use crate::printable::controls_a_terminal;

/// The word in single quotes, as a POSIX shell reads any bytes but NUL.
pub fn in_single_quotes(word: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = word.split(|&byte| byte == b'\'').collect();
    [&b"'"[..], &parts.join(&b"'\\''"[..]), b"'"].concat()
}

/// The word of a command that a person may copy into a POSIX shell, or into fish, quoted if it has to be.
/// It is never cut: an open quote would take in what is pasted next.
pub fn posix_word(word: &[u8]) -> String {
    match std::str::from_utf8(word) {
        Ok(text) if !text.chars().any(controls_a_terminal) => quoted(text),
        Ok(_) | Err(_) => in_hexadecimal(word),
    }
}

fn quoted(word: &str) -> String {
    // Only what means nothing to any shell: `!` and `{` do to some, and `=` does unless a flag has it.
    let others = if word.starts_with("--") { "/._-+:,@=" } else { "/._-+:,@" };
    let plain = |character: char| character.is_ascii_alphanumeric() || others.contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for character in word.chars() {
        match character {
            // Outside of the quotes: in those of fish a backslash is special.
            '\'' | '\\' => quoted.extend(['\'', '\\', character, '\'']),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// For bash, zsh and ksh; others refuse it, or take it for another word.
fn in_hexadecimal(word: &[u8]) -> String {
    let mut quoted = String::from("$'");
    for &byte in word {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('\'');
    quoted
}
