//! What the program prints: steps with ticks, warnings, errors with their hints.

mod paint;
mod side_by_side;
mod table;

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use crate::platform::prepare_terminal;
use crate::{Error, Result};
pub(crate) use paint::{GREEN, Paint, RED, YELLOW};
pub(crate) use side_by_side::{SideBySide, terminal_size};
pub(crate) use table::{Cell, Table, cut};

/// Shows steps as they happen: redrawn on a terminal, plain lines elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    shown: Shown,
    paint: Paint,
}

/// What a person is shown while a command works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
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
    /// Something is otherwise than a person left it.
    Changed {
        /// What.
        name: String,
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
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let shown = if terminal { Shown::Redrawn } else { Shown::Lines };
        Self { shown, paint: Paint::stdout() }
    }

    /// A report that shows nothing.
    pub(crate) fn silent() -> Self {
        Self { shown: Shown::Nothing, paint: Paint::none() }
    }

    /// A report that passes each event to a function.
    pub(crate) fn to(receive: impl Fn(&Event) + 'static) -> Self {
        Self { shown: Shown::PassedTo(Rc::new(receive)), paint: Paint::none() }
    }

    /// A report for the process that started this one.
    pub(crate) fn objects() -> Self {
        Self { shown: Shown::Objects, paint: Paint::none() }
    }

    /// Runs a step and shows it. `doing` describes it; the step may return a note on its result.
    pub(crate) async fn step<T>(
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
    pub(crate) fn warn(&self, text: &str) {
        self.show(&Event::Warning { text: text.to_owned() });
    }

    /// Shows that something is otherwise than a person left it.
    pub(crate) fn say_changed(&self, name: &str) {
        self.show(&Event::Changed { name: name.to_owned() });
    }

    /// Shows a line.
    pub(crate) fn say(&self, text: &str) {
        self.show(&Event::Said { text: text.to_owned() });
    }

    /// Shows an event, of this process or of another one.
    pub(crate) fn show(&self, event: &Event) {
        let text = match (&self.shown, event) {
            (Shown::Nothing, _) => return,
            (Shown::PassedTo(receive), event) => return receive(event),
            (Shown::Objects, event) => serde_json::to_string(event).unwrap_or_default(),
            (Shown::Redrawn, Event::Begun { doing }) => {
                let _ = write!(std::io::stdout(), "  {doing} …");
                let _ = std::io::stdout().flush();
                return;
            }
            (Shown::Lines | Shown::Redrawn, event) => match event.line("", self.paint) {
                Some(line) => line,
                None => return,
            },
        };
        let erase = if matches!(self.shown, Shown::Redrawn) { "\r\u{1b}[K" } else { "" };
        // A closed pipe is no reason to fail.
        let _ = writeln!(std::io::stdout(), "{erase}{text}");
    }
}

impl Event {
    /// The line that shows it, with a prefix before its text. The beginning of a step has none.
    fn line(&self, prefix: &str, paint: Paint) -> Option<String> {
        Some(match self {
            Self::Begun { .. } => return None,
            Self::Done { doing, came, millis } => {
                let came = if came.is_empty() { String::new() } else { format!(": {came}") };
                let time = paint.time(Duration::from_millis(*millis));
                format!("{} {prefix}{doing}{came} {time}", paint.tick())
            }
            Self::Failed { doing } => format!("{} {prefix}{doing}", paint.cross()),
            Self::Warning { text } => format!("{} {prefix}{text}", paint.mark()),
            Self::Changed { name } => format!("{prefix}changed: {name}"),
            Self::Said { text } => format!("{prefix}{text}"),
        })
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

/// Prints a line for a program that reads our output. A closed pipe is no reason to fail.
pub(crate) fn print_line(text: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Shows an error and its hints, on standard error.
pub fn show_error(error: &Error) {
    let label = Paint::stderr().painted("keybridge:", RED);
    let mut text = format!("{label} {error}\n");
    for hint in &error.hints {
        let _ = writeln!(text, "  → {hint}");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Shows a note on standard error, where standard output belongs to another program.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "keybridge: {text}");
}

/// The result of a command for several targets: shows every error but the last, which it gives back.
pub(crate) fn show_all_but_last(mut errors: Vec<Error>) -> Result<()> {
    let last = errors.pop();
    errors.iter().for_each(show_error);
    last.map_or(Ok(()), Err)
}

/// How long ago, in the largest unit that fits.
pub(crate) fn age(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(size, _)| seconds >= *size);
    let (size, name) = unit.unwrap_or((1, "s"));
    format!("{}{name}", seconds / size)
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

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (172_800, "2d")] {
            assert_eq!(age(seconds), text);
        }
    }
}
