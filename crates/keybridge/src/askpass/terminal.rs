//! The terminal of this process.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::sync::{Arc, Mutex, PoisonError};

use keybridge_proto::printable;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// Ctrl-C, as a terminal sends it.
const INTERRUPT: u8 = 3;

/// The terminal that a person sits at.
#[derive(Debug)]
pub(super) struct Terminal {
    device: Arc<File>,
    /// How it was, while it is otherwise.
    before: Arc<Mutex<Option<Termios>>>,
    /// The person wants no more questions.
    is_cancelled: Arc<Mutex<bool>>,
}

/// What a person typed. It may be secret, and is shown nowhere.
#[derive(Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_yes(&self) -> bool {
        self.0.eq_ignore_ascii_case(b"yes")
    }
}

impl Terminal {
    /// The controlling terminal; nothing if there is none.
    pub(super) fn open() -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self {
            device: Arc::new(device),
            before: Arc::default(),
            is_cancelled: Arc::default(),
        })
    }

    /// Shows a text.
    pub(super) fn say(&self, text: &str) {
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
            let answer = read_line(&terminal, &before, &question, aloud).ok().flatten();
            restore(&terminal, &before);
            *is_cancelled = answer.is_none();
            answer
        });
        asking.await.ok().flatten()
    }

    /// Gives the terminal back as it was.
    pub(super) fn restore(&self) {
        restore(&self.device, &self.before);
    }
}

fn restore(terminal: &File, before: &Mutex<Option<Termios>>) {
    let before = before.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = tcsetattr(terminal, OptionalActions::Now, &before);
    }
}

/// Shows a text of a host's: it can't steer the terminal.
fn show(mut terminal: &File, text: &str, end: &str) -> io::Result<()> {
    let lines: Vec<_> = text.split('\n').map(|line| printable(line).to_string()).collect();
    // Over the step that is under way.
    write!(terminal, "\r\u{1b}[K{}{end}", lines.join("\n"))?;
    terminal.flush()
}

fn read_line(
    terminal: &File,
    before: &Mutex<Option<Termios>>,
    question: &str,
    aloud: bool,
) -> io::Result<Option<Answer>> {
    let mut modes = tcgetattr(terminal)?;
    *before.lock().unwrap_or_else(PoisonError::into_inner) = Some(modes.clone());
    modes.local_modes.set(LocalModes::ECHO, aloud);
    // Ctrl-C ends the line instead of this program, which would leave the terminal as it is now.
    modes.local_modes.remove(LocalModes::ISIG);
    modes.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
    // Flushed: what was typed before the question is no answer to it.
    tcsetattr(terminal, OptionalActions::Flush, &modes)?;
    show(terminal, question, "")?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(terminal);
    loop {
        let read = reader.fill_buf()?;
        let taken = read.iter().position(|byte| matches!(*byte, b'\n' | INTERRUPT));
        let count = taken.map_or(read.len(), |at| at + 1);
        line.extend_from_slice(read.get(..count).unwrap_or_default());
        reader.consume(count);
        if taken.is_some() || count == 0 {
            break;
        }
    }
    if !aloud || line.last() != Some(&b'\n') {
        let mut terminal = terminal;
        let _ = terminal.write_all(b"\n");
    }
    Ok(match line.pop() {
        Some(b'\n') => Some(Answer(line)),
        Some(_) | None => None,
    })
}
