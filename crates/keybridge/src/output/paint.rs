//! Colours, where they are wanted.

use std::env;
use std::io::IsTerminal;
use std::time::Duration;

use super::short;

pub(crate) const RED: &str = "31";
pub(crate) const GREEN: &str = "32";
pub(crate) const YELLOW: &str = "33";
pub(super) const DIM: &str = "2";

/// Paints text for one of the standard streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && colours_wanted() }
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self { colours: std::io::stderr().is_terminal() && colours_wanted() }
    }

    /// For text that stays plain.
    pub(crate) const fn none() -> Self {
        Self { colours: false }
    }

    /// A text in a colour.
    pub(crate) fn painted(self, text: &str, colour: &str) -> String {
        if self.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A text that matters less.
    pub(crate) fn quiet(self, text: &str) -> String {
        self.painted(text, DIM)
    }

    /// Stands before what succeeded.
    pub(crate) fn tick(self) -> String {
        self.painted("✓", GREEN)
    }

    /// Stands before what failed.
    pub(crate) fn cross(self) -> String {
        self.painted("✗", RED)
    }

    /// Stands before a warning.
    pub(crate) fn mark(self) -> String {
        self.painted("!", YELLOW)
    }

    /// How long something took.
    pub(super) fn time(self, time: Duration) -> String {
        self.quiet(&format!("({})", short(time)))
    }
}

fn colours_wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}
