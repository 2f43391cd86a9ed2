//! Command lines of a shell, for commands that a person may copy.

use keybridge_proto::{controls_a_terminal, posix_word};

use crate::platform::{Shell, System};

/// The word, quoted if it has to be. It is never cut: an open quote would take in what is pasted next.
pub(crate) fn quoted(word: &str) -> String {
    quoted_for(System::here().shell, word)
}

/// A command line of these words, each quoted for a shell.
pub(crate) fn line<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

fn quoted_for(shell: Shell, word: &str) -> String {
    match shell {
        Shell::Posix => posix_word(word.as_bytes()),
        Shell::PowerShell => quoted_for_powershell(word),
    }
}

fn quoted_for_powershell(word: &str) -> String {
    // A comma makes a list, @ begins one, and `=` is plain only in a flag.
    let others = if word.starts_with("--") { "/._-+:\\=" } else { "/._-+:\\" };
    let plain = |character: char| character.is_ascii_alphanumeric() || others.contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for character in word.chars() {
        match character {
            // It takes these four for quotes, too.
            '\'' | '\u{2018}'..='\u{201b}' => quoted.extend([character, character]),
            other if controls_a_terminal(other) => quoted.push(char::REPLACEMENT_CHARACTER),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posix(word: &str) -> String {
        quoted_for(Shell::Posix, word)
    }

    #[test]
    fn a_word_in_a_fix_is_posix() {
        assert_eq!(posix("web-1"), "web-1");
        assert_eq!(posix("a b; rm"), "'a b; rm'");
        assert_eq!(posix("it's"), "'it'\\''s'");
        assert_eq!(posix(""), "''");
        // Some shells read these in words without quotes.
        for word in ["a!!", "{a,b}", "^a", "=ls", "~", "a=b", "%1", "a\u{a0}b"] {
            assert_eq!(posix(word), format!("'{word}'"));
        }
        assert_eq!(posix("a\u{1b}[31m\nb\r\u{202e}"), r"$'a\x1b\x5b31m\x0ab\x0d\xe2\x80\xae'");
    }

    #[test]
    fn a_word_is_quoted_for_powershell() {
        let quoted = |word| quoted_for(Shell::PowerShell, word);
        assert_eq!(quoted(r"C:\Users\ann\x"), r"C:\Users\ann\x");
        assert_eq!(quoted(r"C:\Program Files (x86)\x"), r"'C:\Program Files (x86)\x'");
        assert_eq!(quoted("it's \u{2019}; $x"), "'it''s \u{2019}\u{2019}; $x'");
        for word in ["a,b", "@a", "$a", "`a", "", "a;b", "%a%"] {
            assert_eq!(quoted(word), format!("'{word}'"));
        }
    }

    crate::platform::tests_on_unix! {
    #[test]
    fn a_shell_reads_a_quoted_word_again_whatever_its_length() {
        for word in [
            "it's; rm -rf $HOME `x` \"y\" \\ *?[a] !! {a,b}".to_owned(),
            r"\'; touch owned; '\".to_owned(),
            format!("{}'; touch owned; '", "a b".repeat(1000)),
            "'".repeat(2000),
        ] {
            let quoted = posix(&word);
            for shell in ["sh", "bash"] {
                let mut read = std::process::Command::new(shell);
                let read = read.args(["-c", &format!("printf %s {quoted}")]).output().unwrap();
                assert_eq!(String::from_utf8(read.stdout).unwrap(), word, "{shell}: {quoted}");
            }
            assert_eq!(read_by_fish(&quoted), word);
        }
    }

    /// One word as fish reads it: in its single quotes a backslash quotes a quote and itself.
    fn read_by_fish(text: &str) -> String {
        let (mut word, mut is_quoted) = (String::new(), false);
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            match character {
                '\'' => is_quoted = !is_quoted,
                '\\' if !is_quoted || matches!(rest.peek(), Some('\'' | '\\')) => {
                    word.extend(rest.next());
                }
                other => {
                    assert!(is_quoted || !" ;$`()".contains(other), "{other:?} acts in {text}");
                    word.push(other);
                }
            }
        }
        assert!(!is_quoted, "an open quote: {text}");
        word
    }
    }
}
