//! What people see: steps with ticks, warnings, errors with their hints.

use std::env;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Shows steps as they happen: redrawn on a terminal, plain lines elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    shown: Shown,
    colour: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// A step is drawn when it begins and again when it has ended.
    Redrawn,
    /// A line for each step that has ended.
    Lines,
    /// Nothing: standard output is for a program.
    Nothing,
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

    /// Does a step. `doing` says what, and the step itself may add what came of it.
    pub async fn step<T>(
        &self,
        doing: &str,
        step: impl Future<Output = Result<(T, String)>>,
    ) -> Result<T> {
        if self.shown == Shown::Redrawn {
            print!("  {doing} …");
            let _ = std::io::stdout().flush();
        }
        let start = Instant::now();
        match step.await {
            Ok((value, came)) => {
                let came = if came.is_empty() { came } else { format!(": {came}") };
                let time = self.dimmed(&format!("({})", short(start.elapsed())));
                self.line(&format!("{} {doing}{came} {time}", self.painted("✓", GREEN)));
                Ok(value)
            }
            Err(error) => {
                self.line(&format!("{} {doing}", self.painted("✗", RED)));
                Err(error)
            }
        }
    }

    /// Says something that is worth knowing and stops nothing.
    pub fn warn(&self, text: &str) {
        self.line(&format!("{} {text}", self.painted("!", YELLOW)));
    }

    /// Says something.
    pub fn say(&self, text: &str) {
        self.line(text);
    }

    fn line(self, text: &str) {
        // A pipe that nobody reads any more is no reason to fail.
        let _ = match self.shown {
            Shown::Redrawn => writeln!(std::io::stdout(), "\r\u{1b}[K{text}"),
            Shown::Lines => writeln!(std::io::stdout(), "{text}"),
            Shown::Nothing => Ok(()),
        };
    }

    fn painted(self, text: &str, colour: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn dimmed(self, text: &str) -> String {
        self.painted(text, DIM)
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows an error and what to do about it, on standard error.
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

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const DIM: &str = "2";

fn colours_wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// A time that a person can read: `12 ms`, `1.2 s`.
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
