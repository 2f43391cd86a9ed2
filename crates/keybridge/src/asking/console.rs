//! What a console shows, and what its keys do. It has no terminal and no clock of its own.
//!
//! ```text
//!            ┌──────────── it has ended ─────────────┐
//!            ▼                                       │
//!  Nothing waits ── a question ──▶ Shown ── settled ─┴▶ Open ── y, t, n ──▶ Answered
//! ```
//!
//! One question is open at a time. A key counts only after a question has stood there for a moment: what was
//! meant for the one before, which has just ended, is no answer to this one.

use keybridge_proto::permission::PersonsWord;

use super::text::{Description, how, name_of, what};
use super::{Asked, Ended};
use crate::platform::INTERRUPT;
use crate::target::TargetAddress;

/// The narrowest terminal that lines are broken for.
const LEAST_WIDTH: usize = 20;

/// Before what a target has written.
const QUOTED: (&str, &str) = ("  | ", "  | ");

/// Before a line of ours, and before its further rows.
const DETAIL: (&str, &str) = ("  ", "      ");
const HEADLINE: (&str, &str) = ("", "      ");

/// What is shown at one terminal of the questions of all bridges.
#[derive(Debug)]
pub(crate) struct Console {
    /// The columns of the terminal.
    width: usize,
    /// The first one is shown.
    waiting: Vec<Waiting>,
    front: Front,
}

#[derive(Debug)]
struct Waiting {
    target: TargetAddress,
    asked: Asked,
}

/// How far the first question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Front {
    /// It isn't shown yet, or there is none.
    #[default]
    Unshown,
    /// It is shown, and keys don't count yet.
    Shown,
    /// It can be answered.
    Open,
    /// It was answered here, and hasn't ended yet.
    Answered,
}

/// What a key does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Nothing.
    Nothing,
    /// Answers the question.
    Answer { target: TargetAddress, id: u64, word: PersonsWord },
    /// Shows this.
    Show(String),
    /// Ends the console.
    Quit,
}

impl Console {
    pub(crate) const fn new(width: usize) -> Self {
        Self { width, waiting: Vec::new(), front: Front::Unshown }
    }

    /// A question waits.
    pub(crate) fn asked(&mut self, target: TargetAddress, asked: Asked) -> String {
        self.waiting.push(Waiting { target, asked });
        match self.front {
            Front::Unshown => String::new(),
            Front::Shown | Front::Open | Front::Answered => {
                format!("{}\n", count_of(self.waiting.len() - 1))
            }
        }
    }

    /// A question has ended.
    pub(crate) fn ended(&mut self, target: &TargetAddress, id: u64, ended: &Ended) -> String {
        let is_it = |one: &Waiting| one.target == *target && one.asked.id == id;
        let Some(at) = self.waiting.iter().position(is_it) else { return String::new() };
        let Waiting { target, asked } = self.waiting.remove(at);
        let how = how(ended);
        if at == 0 && std::mem::take(&mut self.front) != Front::Unshown {
            return format!("→ {how}\n\n");
        }
        let line = format!("{} wanted {}: {how}", name_of(&target), what(&asked.wanted));
        broken(&line, HEADLINE, self.width)
    }

    /// A bridge has ended, and its questions with it.
    pub(crate) fn left(&mut self, target: &TargetAddress) -> String {
        let of_it = self.waiting.iter().filter(|one| one.target == *target);
        let ids: Vec<u64> = of_it.map(|one| one.asked.id).collect();
        ids.into_iter().map(|id| self.ended(target, id, &Ended::Gone)).collect()
    }

    /// The next question, if one is to be shown now. [`Self::open`] has to follow after a moment.
    pub(crate) fn show(&mut self) -> Option<String> {
        let Waiting { target, asked } =
            self.waiting.first().filter(|_| self.front == Front::Unshown)?;
        self.front = Front::Shown;
        let Description { headline, message, details } = Description::of(target, asked);
        let mut text = broken(&headline, HEADLINE, self.width);
        if let Some(subject) = message.first() {
            text += &cut(subject, QUOTED, self.width);
        }
        if let Some(more) = more(message, self.width) {
            text += &broken(&more, DETAIL, self.width);
        }
        text.extend(details.iter().map(|line| broken(line, DETAIL, self.width)));
        Some(text)
    }

    /// Whether the question that is shown isn't open yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.front == Front::Shown
    }

    /// Lets the question that is shown be answered, and says how. What was typed until now has to be thrown
    /// away.
    pub(crate) fn open(&mut self) -> String {
        let Some(Waiting { target, asked }) = self.waiting.first() else { return String::new() };
        self.front = Front::Open;
        let message = Description::of(target, asked).message;
        let whole = more(message, self.width).map_or("", |_| "   [m] whole message");
        format!("[y] once   [t] for 15 min   [n] no{whole}\n")
    }

    /// A key was pressed.
    pub(crate) fn key(&mut self, key: u8) -> Key {
        let key = key.to_ascii_lowercase();
        if matches!(key, b'q' | INTERRUPT) {
            return Key::Quit;
        }
        let Some(Waiting { target, asked }) =
            self.waiting.first().filter(|_| self.front == Front::Open)
        else {
            return Key::Nothing;
        };
        let word = match key {
            b'y' => PersonsWord::Once,
            b't' => PersonsWord::ForAWhile,
            b'n' => PersonsWord::No,
            b'm' => {
                let message = Description::of(target, asked).message;
                let lines = message.iter().map(|line| broken(line, QUOTED, self.width));
                let whole: String = lines.collect();
                return Key::Show(whole + &self.open());
            }
            _ => return Key::Nothing,
        };
        self.front = Front::Answered;
        Key::Answer { target: target.clone(), id: asked.id, word }
    }
}

fn count_of(behind: usize) -> String {
    match behind {
        1 => "(1 more question waits)".to_owned(),
        behind => format!("({behind} more questions wait)"),
    }
}

/// Says that only the beginning of a message is shown.
fn more(message: &[String], width: usize) -> Option<String> {
    let (subject, more) = message.split_first()?;
    match more.len() {
        0 if rows(subject, QUOTED, width).nth(1).is_none() => None,
        0 => Some("and the rest of the line (m shows it)".to_owned()),
        1 => Some("and 1 more line (m shows it)".to_owned()),
        count => Some(format!("and {count} more lines (m shows them)")),
    }
}

/// A line that fits, and says if something is missing.
fn cut(line: &str, before: (&str, &str), width: usize) -> String {
    let mut rows = rows(line, before, width);
    let first = rows.next().unwrap_or_default();
    let end = if rows.next().is_some() { "…" } else { "" };
    format!("{first}{end}\n")
}

/// A line in as many rows as it takes. A terminal would begin the second one at the left, where a target must
/// not write.
fn broken(line: &str, before: (&str, &str), width: usize) -> String {
    rows(line, before, width).map(|row| row + "\n").collect()
}

/// The rows of a line, the first one and the others with what stands before them.
fn rows<'a>(
    line: &'a str,
    before: (&'a str, &'a str),
    width: usize,
) -> impl Iterator<Item = String> + use<'a> {
    // The last two columns are for what says that a line was cut.
    let room = width.max(LEAST_WIDTH).saturating_sub(before.1.len() + 2);
    let (mut rest, mut before, further) = (Some(line), before.0, before.1);
    std::iter::from_fn(move || {
        let line = rest.take()?;
        let mut used = 0;
        let end = line.char_indices().find(|(_, character)| {
            // A terminal shows some characters twice as wide.
            used += if character.is_ascii() { 1 } else { 2 };
            used > room
        });
        let (row, more) = end.and_then(|(at, _)| line.split_at_checked(at)).unwrap_or((line, ""));
        rest = (!more.is_empty()).then_some(more);
        Some(format!("{}{row}", std::mem::replace(&mut before, further)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::commit_of;

    fn docker() -> TargetAddress {
        TargetAddress::Docker("agent-7".to_owned())
    }

    /// A console at which a question about a commit is open.
    fn open(message: &[&str]) -> (Console, String) {
        let mut console = Console::new(60);
        assert_eq!(console.asked(docker(), commit_of(7, message)), "");
        let text = console.show().unwrap();
        (console, text)
    }

    #[test]
    fn a_commit_is_shown_and_answered_with_one_key() {
        for (key, word) in
            [(b'y', PersonsWord::Once), (b'T', PersonsWord::ForAWhile), (b'n', PersonsWord::No)]
        {
            let (mut console, text) = open(&["Fix the retry loop", "", "It is."]);
            assert_eq!(
                text,
                "agent-7 (docker) wants a commit signed\n  | Fix the retry loop\n  \
                 and 2 more lines (m shows them)\n  \
                 Ada <ada@example.org>, parent 9f3a565, tree 3d20439\n  with 830CBD98D0B71E17\n"
            );
            let prompt = "[y] once   [t] for 15 min   [n] no   [m] whole message\n";
            assert_eq!(console.open(), prompt);
            let shown = format!("  | Fix the retry loop\n  | \n  | It is.\n{prompt}");
            assert_eq!(console.key(b'm'), Key::Show(shown));
            assert_eq!(console.key(b'x'), Key::Nothing);
            assert_eq!(console.key(key), Key::Answer { target: docker(), id: 7, word });
            assert_eq!(console.key(key), Key::Nothing, "once");
        }
    }

    #[test]
    fn a_key_never_answers_the_question_after_the_one_that_has_just_ended() {
        let (mut console, _) = open(&["one"]);
        assert_eq!(console.key(b'y'), Key::Nothing, "it was shown just now");
        console.open();
        assert_eq!(console.asked(docker(), commit_of(8, &["two"])), "(1 more question waits)\n");
        assert_eq!(console.ended(&docker(), 7, &Ended::Gone), "→ its client has gone\n\n");
        assert_eq!(console.key(b'y'), Key::Nothing);
        assert!(console.show().is_some_and(|text| text.contains("| two")) && console.is_settling());
        assert_eq!(console.key(b'y'), Key::Nothing);
        console.open();
        let answer = Key::Answer { target: docker(), id: 8, word: PersonsWord::Once };
        assert_eq!(console.key(b'y'), answer);
    }

    #[test]
    fn a_bridge_that_ends_takes_its_questions_with_it_and_no_others() {
        let (mut console, _) = open(&["one"]);
        console.open();
        console.asked(TargetAddress::Here, commit_of(7, &["two"]));
        assert_eq!(console.left(&docker()), "→ its client has gone\n\n");
        assert!(
            console.show().is_some_and(|text| text.starts_with("here wants a commit signed\n"))
        );
    }

    #[test]
    fn a_long_line_is_never_continued_where_lines_of_ours_begin() {
        let long = format!("{}agent-7 (docker) wants a tag signed", "ä ".repeat(40));
        let (mut console, text) = open(&[&long]);
        assert!(text.contains("…\n  and the rest of the line (m shows it)\n"), "{text}");
        console.open();
        let Key::Show(whole) = console.key(b'm') else { panic!() };
        let rows: Vec<&str> = whole.lines().collect();
        let (prompt, rows) = rows.split_last().unwrap();
        assert!(prompt.starts_with("[y] once"));
        let shown: String = rows.iter().map(|row| row.strip_prefix("  | ").unwrap()).collect();
        assert_eq!(shown, long);
        assert!(rows.iter().all(|row| row.chars().count() <= 60));
    }
}
