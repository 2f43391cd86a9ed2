//! The targets that a command is for: those that it names, or those that a person chooses from a list.

use std::io::{IsTerminal, Write};

use keybridge_proto::printable;
use serde_json::{Value, json};

use crate::askpass::{Terminal, Typed};
use crate::candidates::{Candidate, Candidates};
use crate::output::{Cell, GREEN, Paint, RED, Table, YELLOW, age, terminal_size};
use crate::supervisor::{BridgeManager, BridgeState, BridgeStatus};
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Reads the targets of a command that works on bridges. If there is none, the error lists what is bridged.
pub(super) async fn all_named(
    words: &[String],
    manager: &BridgeManager,
) -> Result<Vec<TargetAddress>> {
    if words.is_empty() {
        return Err(none_named(manager).await);
    }
    words.iter().map(|word| word.parse()).collect()
}

/// Reads the one target.
pub(super) async fn one_named(
    word: Option<&str>,
    manager: &BridgeManager,
) -> Result<TargetAddress> {
    match word {
        Some(word) => word.parse(),
        None => Err(none_named(manager).await),
    }
}

async fn none_named(manager: &BridgeManager) -> Error {
    let error = Error::new(ErrorKind::Usage, "no target is named");
    let bridged = manager.all().await.into_iter().filter_map(|(_, status)| {
        let address: TargetAddress = status.target.parse().ok()?;
        Some(format!("{} (bridged: {})", address.as_word(), status.state.word()))
    });
    let bridged: Vec<_> = bridged.collect();
    if bridged.is_empty() {
        return error.hint("nothing is bridged; keybridge up TARGET starts");
    }
    error.listing(bridged, "keybridge status")
}

/// What can be bridged, and what is: a person chooses from it where `up` names no target.
pub(super) struct Choices {
    choices: Vec<Choice>,
    problems: Vec<String>,
}

struct Choice {
    candidate: Candidate,
    /// How its bridge is, if it has one.
    bridge: Option<BridgeState>,
}

impl Choices {
    /// Looks for everything that can be chosen.
    pub(super) async fn find(manager: &BridgeManager) -> Self {
        let (listed, bridges) = tokio::join!(Candidates::list(), manager.all());
        let mut bridges: Vec<_> = bridges.into_iter().map(Some).collect();
        let mut choices: Vec<Choice> = Vec::new();
        for candidate in listed.found {
            let folder = manager.folder_of(&candidate.key);
            let is_its = |bridge: &&mut Option<_>| matches!(&**bridge, Some((of_bridge, _)) if *of_bridge == folder);
            let bridge = bridges.iter_mut().find(is_its).and_then(Option::take);
            let bridge = bridge.map(|(_, status)| status.state);
            choices.push(Choice { candidate, bridge });
        }
        // Those that no source lists, such as a second GnuPG home.
        let others = bridges.into_iter().flatten();
        let mut others: Vec<_> =
            others.filter_map(|(_, status)| Choice::bridged(&status)).collect();
        others.sort_by_key(Choice::name);
        choices.extend(others);
        Self { choices, problems: listed.problems }
    }

    /// Whether a person can be asked here.
    pub(super) fn can_ask() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Says that something takes a moment, until the list is shown.
    pub(super) fn say_looking() {
        let _ = write!(std::io::stderr(), "  looking for targets …");
    }

    /// Shows the list, and asks until there is an answer. None may be chosen.
    pub(super) async fn ask(&self) -> Result<Vec<TargetAddress>> {
        let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        if self.choices.is_empty() {
            let message = "nothing was found that can be bridged";
            let error = Error::new(ErrorKind::NoTarget, message);
            return Err(error
                .with_hints(self.problems.iter().map(String::as_str))
                .hint(TargetAddress::FORMS));
        }
        let Some(terminal) = Terminal::open() else { return Err(self.not_named()) };
        let _ = std::io::stderr().write_all(self.shown(Paint::stderr()).as_bytes());
        let names: Vec<_> = self.choices.iter().map(Choice::name).collect();
        let question = "Which? Numbers or names, such as 1 3 or 1-2; Enter for none: ";
        loop {
            let line = match terminal.ask_aloud(question.to_owned()).await {
                Typed::Line(line) => line,
                Typed::Interrupted => return Err(Error::failed("interrupted")),
                Typed::Ended => {
                    return Err(Error::new(ErrorKind::Usage, "no target was chosen"));
                }
            };
            match parse_choice(&String::from_utf8_lossy(line.as_bytes()), &names) {
                Ok(chosen) => {
                    let chosen = chosen.into_iter().filter_map(|index| self.choices.get(index));
                    return Ok(chosen.map(|choice| choice.candidate.address.clone()).collect());
                }
                Err(wrong) => terminal.say(&wrong),
            }
        }
    }

    /// The error where nobody can be asked: it lists them.
    pub(super) fn not_named(&self) -> Error {
        let error = Error::new(ErrorKind::Usage, "no target is named");
        let error = match self.choices.as_slice() {
            [] => error.hint("nothing was found that can be bridged"),
            choices => {
                let lines = choices.iter().map(Choice::line).collect();
                error.listing(lines, "keybridge up, at a terminal,")
            }
        };
        let error = error.with_hints(self.problems.iter().map(String::as_str));
        if self.choices.is_empty() { error.hint(TargetAddress::FORMS) } else { error }
    }

    /// The list for programs.
    pub(super) fn to_json(&self) -> Value {
        let as_json = |choice: &Choice| {
            let mut object = json!({ "target": choice.candidate.address.to_string() });
            let mut add = |name: &str, value: Option<Value>| {
                if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
                    object.insert(name.to_owned(), value);
                }
            };
            let detail = Some(&choice.candidate.detail).filter(|detail| !detail.is_empty());
            add("detail", detail.map(|detail| json!(detail)));
            add("age", choice.candidate.age.map(|age| json!(age.as_secs())));
            add("state", choice.bridge.map(|state| json!(state.word())));
            object
        };
        self.choices.iter().map(as_json).collect()
    }

    fn shown(&self, paint: Paint) -> String {
        let mut table =
            Table::new(["", "TARGET", "WHAT", "AGE", "BRIDGE"]).cutting(2, 12).cutting(1, 24);
        for (index, choice) in self.choices.iter().enumerate() {
            let digits = self.choices.len().to_string().len();
            table.row([
                format!("{:>digits$}", index + 1).into(),
                choice.candidate.address.to_string().into(),
                choice.candidate.detail.as_str().into(),
                choice.age().into(),
                choice.bridge.map(state_cell).unwrap_or_default(),
            ]);
        }
        let width = terminal_size().map(|(columns, _)| columns.saturating_sub(1));
        let mut text = table.text(width, paint);
        for problem in &self.problems {
            text.push_str(&paint.quiet(problem));
            text.push('\n');
        }
        text
    }
}

/// The state of a bridge, in its colour.
pub(super) fn state_cell(state: BridgeState) -> Cell {
    let colour = match state {
        BridgeState::Ready => GREEN,
        BridgeState::Starting | BridgeState::Waiting => YELLOW,
        BridgeState::Failed => RED,
    };
    Cell::from(state.word()).in_colour(colour)
}

impl Choice {
    /// A target that is bridged. Only the editor itself can bridge its windows.
    fn bridged(status: &BridgeStatus) -> Option<Self> {
        let address: TargetAddress = status.target.parse().ok()?;
        if matches!(address, TargetAddress::Editor(_)) {
            return None;
        }
        let candidate = Candidate { address, key: String::new(), detail: String::new(), age: None };
        Some(Self { candidate, bridge: Some(status.state) })
    }

    fn name(&self) -> String {
        self.candidate.address.to_string()
    }

    fn age(&self) -> String {
        self.candidate.age.map(|time| age(time.as_secs())).unwrap_or_default()
    }

    /// In one line, for an error.
    fn line(&self) -> String {
        let bridge = self.bridge.map(|state| format!("bridged: {}", state.word()));
        let facts = [self.candidate.detail.clone(), self.age(), bridge.unwrap_or_default()];
        let facts: Vec<_> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        let word = self.candidate.address.as_word();
        if facts.is_empty() { word } else { format!("{word} ({})", printable(&facts.join(", "))) }
    }
}

/// How many words of a choice are read: more than that is none.
const MOST_WORDS: usize = 1000;

/// What a person has typed: the chosen places of the list, in the order in which they were typed: numbers, ranges of them, and names.
/// An error says what is wrong.
fn parse_choice(line: &str, names: &[String]) -> Result<Vec<usize>, String> {
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
        parse_choice(line, &names.map(str::to_owned))
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
