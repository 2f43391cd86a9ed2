//! The terminal of this process.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use keybridge_proto::printable;

use crate::platform::{INTERRUPT, TerminalDevice, TerminalModes};

/// How many lines of a question are shown. The longest one of ssh's own has less: a host key as a picture,
/// and where else it is known.
const MOST_LINES: usize = 40;

/// How many characters of a line are shown: a host must not fill the screen, and so hide who asks.
const LONGEST_LINE: usize = 400;

/// The size of one read: a terminal gives a line of at most 4095 bytes.
const READ_SIZE: usize = 4096;

/// The terminal that a person sits at.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Arc<TerminalDevice>,
    /// How it was, while it is otherwise.
    before: Arc<Mutex<Option<TerminalModes>>>,
    /// The person wants no more questions.
    is_cancelled: Arc<Mutex<bool>>,
}

/// What a person typed. It may be secret, and is shown nowhere.
#[derive(Default)]
pub(crate) struct Answer(Vec<u8>);

/// How a question ended.
pub(crate) enum Typed {
    /// With a line.
    Line(Answer),
    /// With Ctrl-C.
    Interrupted,
    /// With the end of the input.
    Ended,
}

impl Typed {
    fn line(self) -> Option<Answer> {
        match self {
            Self::Line(line) => Some(line),
            Self::Interrupted | Self::Ended => None,
        }
    }
}

impl Answer {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_yes(&self) -> bool {
        self.0.eq_ignore_ascii_case(b"yes")
    }
}

impl Terminal {
    /// The controlling terminal; nothing if there is none.
    pub(crate) fn open() -> Option<Self> {
        let device = TerminalDevice::open()?;
        Some(Self {
            device: Arc::new(device),
            before: Arc::default(),
            is_cancelled: Arc::default(),
        })
    }

    /// Shows a text.
    pub(crate) fn say(&self, text: &str) {
        let _ = show(&self.device, text, "\n");
    }

    /// Asks, and waits for a line; nothing if the person wants to stop. `aloud` shows what is typed.
    pub(super) async fn ask(&self, question: String, aloud: bool) -> Option<Answer> {
        let (terminal, before) = (Arc::clone(&self.device), Arc::clone(&self.before));
        let is_cancelled = Arc::clone(&self.is_cancelled);
        let asking = tokio::task::spawn_blocking(move || {
            let mut is_cancelled = is_cancelled.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_cancelled {
                return None;
            }
            let answer = read_line(&terminal, &before, &question, aloud).ok();
            let answer = answer.and_then(Typed::line);
            restore(&terminal, &before);
            *is_cancelled = answer.is_none();
            answer
        });
        asking.await.ok().flatten()
    }

    /// Asks something that isn't secret, and waits for the answer.
    pub(crate) async fn ask_aloud(&self, question: String) -> Typed {
        let (terminal, before) = (Arc::clone(&self.device), Arc::clone(&self.before));
        let asking = tokio::task::spawn_blocking(move || {
            let answer = read_line(&terminal, &before, &question, true);
            restore(&terminal, &before);
            answer
        });
        // A terminal that is gone has no more input.
        asking.await.ok().and_then(Result::ok).unwrap_or(Typed::Ended)
    }

    /// Gives the terminal back as it was.
    pub(super) fn restore(&self) {
        restore(&self.device, &self.before);
    }
}

fn restore(terminal: &TerminalDevice, before: &Mutex<Option<TerminalModes>>) {
    let before = before.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        terminal.restore(&before);
    }
}

/// Shows a text of a host's: it can't steer the terminal.
fn show(terminal: &TerminalDevice, text: &str, end: &str) -> io::Result<()> {
    // Over the step that is under way.
    terminal.write(&format!("\r\u{1b}[K{}{end}", shown(text)))
}

/// A text of a host's as it is shown. Each of several lines is marked: none of them can be taken for one
/// of ours, nor for a question of another program.
fn shown(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().take(MOST_LINES).map(shown_line).collect();
    if text.lines().count() > MOST_LINES {
        lines.push("…".to_owned());
    }
    match &lines[..] {
        [] => String::new(),
        [line] => line.clone(),
        lines => format!("| {}", lines.join("\n| ")),
    }
}

fn shown_line(line: &str) -> String {
    let shown = printable(line).to_string();
    match shown.char_indices().nth(LONGEST_LINE) {
        Some((at, _)) => format!("{}…", shown.get(..at).unwrap_or_default()),
        None => shown,
    }
}

fn read_line(
    terminal: &TerminalDevice,
    before: &Mutex<Option<TerminalModes>>,
    question: &str,
    aloud: bool,
) -> io::Result<Typed> {
    let modes = terminal.modes()?;
    *before.lock().unwrap_or_else(PoisonError::into_inner) = Some(modes.clone());
    terminal.await_line(&modes, aloud)?;
    show(terminal, question, "")?;
    let mut line = Vec::new();
    let mut buffer = [0; READ_SIZE];
    loop {
        let count = terminal.read(&mut buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        let taken = read.iter().position(|byte| matches!(*byte, b'\n' | INTERRUPT));
        let count = taken.map_or(read.len(), |at| at + 1);
        line.extend_from_slice(read.get(..count).unwrap_or_default());
        if taken.is_some() || count == 0 {
            break;
        }
    }
    if !aloud || line.last() != Some(&b'\n') {
        let _ = terminal.write("\n");
    }
    Ok(match line.pop() {
        Some(b'\n') => Typed::Line(Answer(line)),
        Some(INTERRUPT) => Typed::Interrupted,
        Some(_) | None => Typed::Ended,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_one_line_is_shown_as_it_is() {
        assert_eq!(shown("dev@web's password: "), "dev@web's password: ");
        assert_eq!(shown(""), "");
    }

    #[test]
    fn lines_of_a_host_are_marked() {
        let asked = "(dev@web) Code: \n\nkeybridge: passphrase of your key: ";
        assert_eq!(shown(asked), "| (dev@web) Code: \n| \n| keybridge: passphrase of your key: ");
        assert_eq!(shown("a\r\nb\rc\u{1b}[2J\u{202e}"), "| a\n| b\\u{d}c\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn a_host_cannot_fill_the_screen() {
        let long = shown(&format!("(dev@web) {}your key: ", " ".repeat(8000)));
        assert!(long.starts_with("(dev@web) ") && long.chars().count() == LONGEST_LINE + 1);
        let lines = shown(&format!("(dev@web) {}your key: ", "\n".repeat(8000)));
        assert_eq!(lines.lines().count(), MOST_LINES + 1);
        assert!(lines.starts_with("| (dev@web) \n| \n"));
    }
}
