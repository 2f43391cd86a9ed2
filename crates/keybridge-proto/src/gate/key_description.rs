//! The text that a dialog of gpg-agent shows for a key, which the target chooses.
//!
//! gpg-agent shows whatever it is sent. Here it becomes text that a person can rely on: what it says
//! stands where it seems to stand, and it can't push the rest of the dialog out of sight. User ids in
//! Latin-1 exist, so bytes that aren't UTF-8 are no reason to refuse the key's use.

use super::AgentSocket;
use crate::assuan::{MAX_LINE, hex_digit};
use crate::printable::controls_a_terminal;

/// gpg-agent puts this before a text that comes over its extra socket.
const NOTE: &[u8] = b"Note:+Request+from+a+remote+site.%0A%0A";

/// How many lines of the target's text are shown. gpg's own texts have four.
const MOST_LINES: usize = 10;

/// In place of what can't be shown: in each pinentry's character set, and never longer than what it replaces.
const REPLACEMENT: char = '?';

/// The line that sets a description, with its LF.
pub(crate) fn describe_key(text: &[u8], socket: AgentSocket) -> Vec<u8> {
    let mut line = b"SETKEYDESC ".to_vec();
    match socket {
        AgentSocket::Extra => {}
        AgentSocket::Main => line.extend_from_slice(NOTE),
    }
    let mut lines = 1;
    let text = unescape(text);
    for character in text
        .utf8_chunks()
        .flat_map(|chunk| chunk.valid().chars().chain(chunk.invalid().first().map(|_| REPLACEMENT)))
    {
        lines += usize::from(character == '\n');
        let escaped = escape(character);
        if lines > MOST_LINES || line.len() + escaped.len() >= MAX_LINE {
            break;
        }
        line.extend_from_slice(escaped.as_bytes());
    }
    line.push(b'\n');
    line
}

/// Reads a text as gpg-agent and pinentry do, save that a `%` without two digits is just that.
fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((&byte, rest)) = text.split_first() {
        let digits = rest.split_first_chunk().filter(|_| byte == b'%');
        let escaped = digits
            .and_then(|(&[high, low], rest)| Some((hex_digit(high)? << 4 | hex_digit(low)?, rest)));
        let (byte, rest) = escaped.unwrap_or((if byte == b'+' { b' ' } else { byte }, rest));
        bytes.push(byte);
        text = rest;
    }
    bytes
}

/// Writes a character as gpg does. So gpg-agent finds none of its own placeholders (`%c`, `%C`, `%F`).
fn escape(character: char) -> String {
    match character {
        ' ' => "+".to_owned(),
        '\n' | '+' | '"' | '%' => format!("%{:02X}", u32::from(character)),
        _ if controls_a_terminal(character) => REPLACEMENT.to_string(),
        _ => character.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: impl AsRef<[u8]>) -> String {
        let line = describe_key(text.as_ref(), AgentSocket::Extra);
        assert!(line.len() <= MAX_LINE);
        let line = String::from_utf8(line).unwrap();
        line.strip_prefix("SETKEYDESC ").unwrap().strip_suffix('\n').unwrap().to_owned()
    }

    #[test]
    fn the_text_of_gpg_is_not_changed() {
        for text in [
            "Please+enter+the+passphrase%0A%22J\u{fc}rgen+%2B+100%25+<j@x>%22%0A255-bit+EDDSA+key",
            "\u{9375}",
            "?",
        ] {
            assert_eq!(shown(text), text);
        }
    }

    #[test]
    fn no_text_controls_a_dialog_or_hides_what_it_says() {
        for (text, expected) in [
            (&b"J\xfcrgen"[..], "J?rgen"),
            (b"J%FCrgen", "J?rgen"),
            (b"J%C3%BCrgen", "J\u{fc}rgen"),
            (b"\xf0\x9f\x94", "?"),
            (b"a%1B[2Jb%0D%00%09\x1b\t\x7f", "a?[2Jb??????"),
            ("a\u{202e}b\u{2066}\u{200f}\u{2028}\u{85}".as_bytes(), "a?b????"),
            (b"a%E2%80%AEb", "a?b"),
            // An agent's placeholders, and escapes that a pinentry would read without checking the digits.
            (b"%c%C%F%%", "%25c%25C%25F%25%25"),
            (b"%!+%1", "%25!+%251"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_text_never_pushes_the_dialog_out_of_sight() {
        assert_eq!(shown("a%0A".repeat(30)), "a%0A".repeat(9) + "a");
        assert_eq!(shown("\"".repeat(900)), "%22".repeat(330));
        assert_eq!(shown("\u{9375}".repeat(330)), "\u{9375}".repeat(330));
    }

    #[test]
    fn a_text_over_the_main_socket_never_seems_to_come_from_the_host() {
        let line = describe_key(b"Sign+this", AgentSocket::Main);
        assert_eq!(line, b"SETKEYDESC Note:+Request+from+a+remote+site.%0A%0ASign+this\n");
        assert!(describe_key(&[b'x'; 990], AgentSocket::Main).len() <= MAX_LINE);
    }
}
