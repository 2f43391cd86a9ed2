//! A target's own words. It can choose them to deceive, so they are always shown with its name.

use keybridge_proto::printable;

/// Marks words as those of the target, or the program, with this name.
pub(crate) fn says(name: &str, words: &(impl AsRef<[u8]> + ?Sized)) -> String {
    format!("{} says: {}", printable(name), printable(words))
}

/// The longest value that stands in a sentence of ours as it is.
const LONGEST_VALUE: usize = 128;

/// Marks what a target gives as a name, a version, a number, a path, an address or a fingerprint, if it doesn't
/// have the form of one: nothing shows where the words of a target end that stand in a sentence of ours.
/// Scripts without blanks have sentences too, and so have commands.
pub(crate) fn mark_if_words(name: &str, value: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-~/@:!".contains(&byte);
    if value.len() > LONGEST_VALUE || !value.bytes().all(is_plain) {
        *value = says(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_stands_in_a_sentence_as_it_is() {
        for value in [
            "2.2.40-1~deb12",
            "x86_64",
            "dev",
            "/run/user/1000/gnupg/S.gpg-agent",
            "a.b+c@lab.example",
            "B0190C2E104496E6!",
            "gpg-agent.socket",
            "",
        ] {
            let mut shown = value.to_owned();
            mark_if_words("web", &mut shown);
            assert_eq!(shown, value);
        }
        for words in [
            "run this as root",
            "run\u{a0}this",
            "curl|sh",
            "x;$IFS",
            "\u{4ee5}root\u{8eab}\u{4efd}\u{8fd0}\u{884c}",
            &"x".repeat(129),
        ] {
            let mut shown = words.to_owned();
            mark_if_words("web", &mut shown);
            assert_eq!(shown, format!("web says: {words}"));
        }
    }
}
