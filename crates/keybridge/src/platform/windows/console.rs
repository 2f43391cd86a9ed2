//! The console of this process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use super::system_calls;

/// The console that a person sits at.
#[derive(Debug)]
pub(crate) struct TerminalDevice {
    input: File,
    output: File,
}

/// How a console reads lines.
#[derive(Debug, Clone)]
pub(crate) struct TerminalModes(u32);

/// Modes of a console's input: lines are edited and shown while they are typed, and Ctrl-C is a character.
const LINE_INPUT: u32 = 0x2;
const ECHO_INPUT: u32 = 0x4;
const PROCESSED_INPUT: u32 = 0x1;

impl TerminalDevice {
    /// The console; nothing if there is none.
    pub(crate) fn open() -> Option<Self> {
        let open = |name| OpenOptions::new().read(true).write(true).open(name).ok();
        let console = Self { input: open("CONIN$")?, output: open("CONOUT$")? };
        system_calls::show_control_sequences(&console.output);
        Some(console)
    }

    /// How it is set.
    pub(crate) fn modes(&self) -> io::Result<TerminalModes> {
        system_calls::console_mode(&self.input).map(TerminalModes)
    }

    /// Gives it back as it was.
    pub(crate) fn restore(&self, before: &TerminalModes) {
        let _ = system_calls::set_console_mode(&self.input, before.0);
    }

    /// Prepares it for a line, which is shown while it is typed if it is read aloud.
    pub(crate) fn await_line(&self, before: &TerminalModes, aloud: bool) -> io::Result<()> {
        // Ctrl-C ends the line instead of this program, which would leave the console as it is now.
        let modes = (before.0 | LINE_INPUT) & !(ECHO_INPUT | PROCESSED_INPUT);
        let modes = if aloud { modes | ECHO_INPUT } else { modes };
        system_calls::set_console_mode(&self.input, modes)?;
        // What was typed before the question is no answer to it.
        system_calls::flush_console(&self.input)
    }

    /// Prepares it for single keys, which aren't shown. What was typed until now is thrown away.
    pub(crate) fn await_keys(&self, before: &TerminalModes) -> io::Result<()> {
        let modes = before.0 & !(LINE_INPUT | ECHO_INPUT | PROCESSED_INPUT);
        system_calls::set_console_mode(&self.input, modes)?;
        system_calls::flush_console(&self.input)
    }

    /// Reads a part of a line, or keys.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // A unit of UTF-16 has at most three bytes in UTF-8.
        let mut units = vec![0; buffer.len() / 3];
        let count = system_calls::read_console(&self.input, &mut units)?;
        let units = units.get(..count).unwrap_or_default();
        let text = String::from_utf16_lossy(units).replace('\r', "");
        let bytes = text.as_bytes();
        if let Some(room) = buffer.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        Ok(bytes.len().min(buffer.len()))
    }

    /// Shows a text.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        system_calls::write_console(&self.output, text).or_else(|_| {
            let mut output = &self.output;
            output.write_all(text.as_bytes())
        })
    }
}

/// Has the console act on escape sequences.
pub fn prepare_terminal() {
    system_calls::show_control_sequences(&io::stdout());
    system_calls::show_control_sequences(&io::stderr());
}

/// The columns and rows of the console at standard output or standard error.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    system_calls::console_size(&io::stdout())
        .or_else(|_| system_calls::console_size(&io::stderr()))
        .ok()
}
