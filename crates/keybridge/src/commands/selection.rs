//! What a person types to choose from a numbered list.

use keybridge_proto::printable;

/// How many words are read: more than that is no choice.
const MOST_WORDS: usize = 1000;

/// The chosen places of the list, in the order in which they were typed: numbers, ranges of them, and names.
/// An error says what is wrong.
pub(crate) fn parse(line: &str, names: &[String]) -> Result<Vec<usize>, String> {
    let words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let words: Vec<_> = words.take(MOST_WORDS).collect();
    if let ["q" | "Q" | "quit" | "none"] = words.as_slice() {
        return Ok(Vec::new());
    }
    let mut chosen = Vec::new();
    for word in words {
        for index in one(word, names)? {
            if !chosen.contains(&index) {
                chosen.push(index);
            }
        }
    }
    Ok(chosen)
}

fn one(word: &str, names: &[String]) -> Result<Vec<usize>, String> {
    if let Some((from, to)) = range(word) {
        if from == 0 || to > names.len() || from > to {
            let last = names.len();
            return Err(format!("{}: the list goes from 1 to {last}", printable(word)));
        }
        return Ok((from - 1..to).collect());
    }
    let is_meant = |name: &&String| {
        name.as_str() == word || name.split_once("://").is_some_and(|(_, name)| name == word)
    };
    let found: Vec<_> = names.iter().enumerate().filter(|(_, name)| is_meant(name)).collect();
    match found.as_slice() {
        [(index, _)] => Ok(vec![*index]),
        [] => Err(format!("{} is not in the list", printable(word))),
        several => {
            let several: Vec<_> = several.iter().map(|(_, name)| name.as_str()).collect();
            Err(format!("{} may be {}", printable(word), several.join(" or ")))
        }
    }
}

/// `3`, or `1-3`.
fn range(word: &str) -> Option<(usize, usize)> {
    let number = |text: &str| {
        // A longer one is more than any list has, and may be too large to read.
        let digits = text.get(..text.len().min(9))?;
        if text.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
    };
    match word.split_once('-') {
        Some((from, to)) => Some((number(from)?, number(to)?)),
        None => number(word).map(|number| (number, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(line: &str) -> Result<Vec<usize>, String> {
        let names = [
            "docker://web",
            "podman://web",
            "ssh://build",
            "docker://7",
            "wsl://q",
            "docker://a-1",
        ];
        parse(line, &names.map(str::to_owned))
    }

    #[test]
    fn numbers_ranges_and_names_are_read() {
        for (line, places) in [
            ("1", &[0][..]),
            ("1 3", &[0, 2]),
            ("3,1", &[2, 0]),
            ("1-3", &[0, 1, 2]),
            (" 2-2,\t2 ", &[1]),
            ("1-2 2-3", &[0, 1, 2]),
            ("build", &[2]),
            ("podman://web 1", &[1, 0]),
            ("docker://7", &[3]),
            ("wsl://q", &[4]),
            ("a-1", &[5]),
        ] {
            assert_eq!(chosen(line).as_deref(), Ok(places), "{line}");
        }
    }

    #[test]
    fn nothing_can_be_chosen() {
        for line in ["", "  ", "q", " Q", "quit", "none", ","] {
            assert_eq!(chosen(line), Ok(Vec::new()), "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
            ("0", "0: the list goes from 1 to 6"),
            ("7", "7: the list goes from 1 to 6"),
            ("1 99999999999999999999999", "99999999999999999999999: the list goes from 1 to 6"),
            ("3-1", "3-1: the list goes from 1 to 6"),
            ("1-9", "1-9: the list goes from 1 to 6"),
            ("web", "web may be docker://web or podman://web"),
            ("db", "db is not in the list"),
            ("1 -2", "-2 is not in the list"),
            ("\u{1b}[A", "\\u{1b}[A is not in the list"),
        ] {
            assert_eq!(chosen(line), Err(said.to_owned()), "{line:?}");
        }
        assert!(chosen(&"x".repeat(100_000)).is_err());
    }
}
