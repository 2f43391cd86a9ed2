//! Patterns in which `*` stands for any text and `?` for one character.

/// Whether a whole text fits a pattern. Takes time that grows with the product of their lengths at most:
/// the text may come from elsewhere.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // What follows the last `*`, and the text that it was last tried with.
    let mut last_star = None;
    loop {
        let text_here = text.clone();
        match (pattern.next(), text.next()) {
            (Some('*'), _) => {
                last_star = Some((pattern.clone(), text_here.clone()));
                text = text_here;
            }
            (None, None) => return true,
            (Some(wanted), Some(came)) if wanted == '?' || wanted == came => {}
            (Some(_), _) | (None, Some(_)) => {
                // The last `*` has to stand for one more character.
                let Some((after_star, tried)) = &mut last_star else { return false };
                if tried.next().is_none() {
                    return false;
                }
                (pattern, text) = (after_star.clone(), tried.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("local:*", "local:/x", true),
            ("local:*", "docker://x", false),
            ("*x*y", "axbxy", true),
            ("*x*y", "axbxyz", false),
            ("**a", "ba", true),
            ("a*", "a", true),
            ("a*b", "a", false),
            ("?", "ab", false),
            ("?", "ä", true),
            ("a?c", "abc", true),
            ("*?", "", false),
            ("*ab?", "aabababc", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_and_a_long_text_take_no_time() {
        let text = "a".repeat(10_000);
        assert!(!matches(&format!("{}b", "*a".repeat(20)), &text));
    }
}
