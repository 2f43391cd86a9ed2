//! Makes untrusted text safe for a terminal or a log. All text of a target is shown this way.

use std::fmt;

/// How many bytes of a text are shown: what a target sends can be of any length.
const SHOWN: usize = 1024;

/// Shows untrusted text so that it can't control a terminal or forge a log line: control characters,
/// escape sequences, bidirectional marks and invalid UTF-8 are escaped.
pub fn printable(text: &(impl AsRef<[u8]> + ?Sized)) -> Printable<'_> {
    Printable(text.as_ref())
}

/// Untrusted text as [`printable`] shows it, cut to `limit` bytes.
pub fn printable_up_to(text: &(impl AsRef<[u8]> + ?Sized), limit: usize) -> String {
    const CUT: &str = "…";
    let mut kept = printable(text).to_string();
    if kept.len() > limit {
        let room = limit.saturating_sub(CUT.len());
        let end = (0..=room).rfind(|&at| kept.is_char_boundary(at)).unwrap_or(0);
        kept.truncate(end);
        kept.push_str(CUT);
    }
    kept
}

/// The last line that isn't empty, of what a program says: it usually tells why it failed.
pub fn last_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n')
        .rev()
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

/// JSON that can't control a terminal: the characters that could are written as `\uXXXX`, which means the
/// same. They occur only inside strings.
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if controls_a_terminal(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string can't fail.
                let _ = fmt::Write::write_fmt(&mut shown, format_args!("\\u{unit:04x}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The result of [`printable`].
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(&'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        for chunk in shown.utf8_chunks() {
            for character in chunk.valid().chars() {
                if controls_a_terminal(character) {
                    write!(f, "{}", character.escape_unicode())?;
                } else {
                    fmt::Write::write_char(f, character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        if shown.len() < self.0.len() {
            write!(f, "… ({} bytes in all)", self.0.len())?;
        }
        Ok(())
    }
}

/// Whether a character can control a terminal, or hide or reorder what is shown.
pub fn controls_a_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Line and paragraph separators, and what reorders, hides or joins text.
            '\u{2028}' | '\u{2029}' | '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
            // What can't be seen otherwise: a name with it looks like another one.
            | '\u{00ad}' | '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_unchanged() {
        assert_eq!(printable("Grüße, 鍵 <a@b>").to_string(), "Grüße, 鍵 <a@b>");
    }

    #[test]
    fn what_controls_a_terminal_is_written_out() {
        for (text, shown) in [
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\nb\r", "a\\u{a}b\\u{d}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("\u{7f}", "\\u{7f}"),
            ("we\u{ad}b\u{3164}", "we\\u{ad}b\\u{3164}"),
        ] {
            assert_eq!(printable(text).to_string(), shown);
        }
        assert_eq!(printable(b"\xff\xfeok").to_string(), "\\xff\\xfeok");
    }

    #[test]
    fn what_is_kept_has_a_bound_and_is_printable() {
        assert_eq!(printable_up_to("Grüße", 256), "Grüße");
        assert_eq!(printable_up_to("a\u{202e}b", 256), "a\\u{202e}b");
        assert_eq!(printable_up_to("ääää", 7), "ää…");
        for text in ["\u{1b}".repeat(7500), "\u{e0001}".repeat(100), "ä".repeat(16 << 10)] {
            for limit in 3..40 {
                let kept = printable_up_to(&text, limit);
                assert!(kept.len() <= limit, "{limit}: {kept}");
                assert_eq!(printable(&kept).to_string(), kept);
            }
        }
    }

    #[test]
    fn the_last_line_with_something_on_it_is_found() {
        assert_eq!(last_line(b"one\n two \r\n\n \n"), b"two");
        assert_eq!(last_line(b"\n"), b"");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let json = "{\"a\":\"ü\u{202e}\u{9b}\u{e0001}\"}";
        assert_eq!(printable_json(json), "{\"a\":\"ü\\u202e\\u009b\\udb40\\udc01\"}");
    }

    #[test]
    fn a_long_text_is_cut() {
        let shown = printable(&vec![b'x'; 1 << 20]).to_string();
        assert!(shown.len() < SHOWN + 64, "{}", shown.len());
        assert!(shown.ends_with("(1048576 bytes in all)"));
    }
}
