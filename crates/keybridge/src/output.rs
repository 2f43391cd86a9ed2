//! What the program prints: steps with ticks, warnings, errors with their hints.

use std::env;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Shows steps as they happen: redrawn on a terminal, plain lines elsewhere.
#[derive(Debug, Clone)]
pub struct Report {
    shown: Shown,
    colour: bool,
}

/// What a person is shown while a command works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A step has started.
    Begun {
        /// What is being done.
        doing: String,
    },
    /// A step has succeeded.
    Done {
        /// What was done.
        doing: String,
        /// Its result, if that is worth mentioning.
        came: String,
        /// How long it took.
        millis: u64,
    },
    /// A step has failed. The error itself is shown at the end of the command.
    Failed {
        /// What was being done.
        doing: String,
    },
    /// A warning.
    Warning {
        /// What.
        text: String,
    },
    /// Any other line.
    Said {
        /// What.
        text: String,
    },
}

#[derive(Clone)]
enum Shown {
    /// For a terminal: a step is drawn when it starts, and again when it has ended.
    Redrawn,
    /// One line for each step that has ended.
    Lines,
    /// One JSON object for each event, for another process that shows them.
    Objects,
    /// Nothing, since standard output is for a program.
    Nothing,
    /// Each event goes to this function.
    PassedTo(Rc<dyn Fn(&Event)>),
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redrawn => "Redrawn",
            Self::Lines => "Lines",
            Self::Objects => "Objects",
            Self::Nothing => "Nothing",
            Self::PassedTo(_) => "PassedTo",
        })
    }
}

impl Report {
    /// A report on standard output.
    pub fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let shown = if terminal { Shown::Redrawn } else { Shown::Lines };
        Self { shown, colour: terminal && colours_wanted() }
    }

    /// A report that shows nothing.
    pub fn silent() -> Self {
        Self { shown: Shown::Nothing, colour: false }
    }

    /// A report that passes each event to a function.
    pub fn to(receive: impl Fn(&Event) + 'static) -> Self {
        Self { shown: Shown::PassedTo(Rc::new(receive)), colour: false }
    }

    /// A report for the process that started this one.
    pub fn objects() -> Self {
        Self { shown: Shown::Objects, colour: false }
    }

    /// Runs a step and shows it. `doing` describes it; the step may return a note on its result.
    pub async fn step<T>(
        &self,
        doing: &str,
        step: impl Future<Output = Result<(T, String)>>,
    ) -> Result<T> {
        let doing = doing.to_owned();
        self.show(&Event::Begun { doing: doing.clone() });
        let start = Instant::now();
        match step.await {
            Ok((value, came)) => {
                let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.show(&Event::Done { doing, came, millis });
                Ok(value)
            }
            Err(error) => {
                self.show(&Event::Failed { doing });
                Err(error)
            }
        }
    }

    /// Shows a warning.
    pub fn warn(&self, text: &str) {
        self.show(&Event::Warning { text: text.to_owned() });
    }

    /// Shows a line.
    pub fn say(&self, text: &str) {
        self.show(&Event::Said { text: text.to_owned() });
    }

    /// Shows an event, of this process or of another one.
    pub fn show(&self, event: &Event) {
        let text = match (&self.shown, event) {
            (Shown::Nothing, _) | (Shown::Lines, Event::Begun { .. }) => return,
            (Shown::PassedTo(receive), event) => return receive(event),
            (Shown::Objects, event) => serde_json::to_string(event).unwrap_or_default(),
            (Shown::Redrawn, Event::Begun { doing }) => {
                let _ = write!(std::io::stdout(), "  {doing} …");
                let _ = std::io::stdout().flush();
                return;
            }
            (Shown::Lines | Shown::Redrawn, Event::Done { doing, came, millis }) => {
                let came = if came.is_empty() { String::new() } else { format!(": {came}") };
                let time =
                    self.painted(&format!("({})", short(Duration::from_millis(*millis))), DIM);
                format!("{} {doing}{came} {time}", self.painted("✓", GREEN))
            }
            (Shown::Lines | Shown::Redrawn, Event::Failed { doing }) => {
                format!("{} {doing}", self.painted("✗", RED))
            }
            (Shown::Lines | Shown::Redrawn, Event::Warning { text }) => {
                format!("{} {text}", self.painted("!", YELLOW))
            }
            (Shown::Lines | Shown::Redrawn, Event::Said { text }) => text.clone(),
        };
        let erase = if matches!(self.shown, Shown::Redrawn) { "\r\u{1b}[K" } else { "" };
        // A closed pipe is no reason to fail.
        let _ = writeln!(std::io::stdout(), "{erase}{text}");
    }

    /// Text in a colour, where colours are wanted.
    pub(crate) fn painted(&self, text: &str, colour: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

/// Prints a line for a program that reads our output. A closed pipe is no reason to fail.
pub fn print_line(text: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Shows an error and its hints, on standard error.
pub fn show_error(error: &Error) {
    let colour = std::io::stderr().is_terminal() && colours_wanted();
    let label = if colour { "\u{1b}[31mkeybridge:\u{1b}[0m" } else { "keybridge:" };
    let mut text = format!("{label} {error}\n");
    for hint in &error.hints {
        text.push_str("  → ");
        text.push_str(hint);
        text.push('\n');
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The result of a command for several targets: shows every error but the last, which it gives back.
pub fn show_all_but_last(mut errors: Vec<Error>) -> Result<()> {
    let last = errors.pop();
    errors.iter().for_each(show_error);
    last.map_or(Ok(()), Err)
}

pub(crate) const RED: &str = "31";
pub(crate) const GREEN: &str = "32";
pub(crate) const YELLOW: &str = "33";
pub(crate) const DIM: &str = "2";

fn colours_wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// A duration for people: `12 ms`, `1.2 s`.
fn short(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(short(Duration::from_micros(12_900)), "12 ms");
        assert_eq!(short(Duration::from_millis(1234)), "1.2 s");
    }
}
