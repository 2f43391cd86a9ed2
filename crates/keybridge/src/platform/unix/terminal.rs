//! The terminal of this process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::platform::INTERRUPT;

/// How a terminal is set.
pub(crate) use rustix::termios::Termios as TerminalModes;

/// The terminal that a person sits at.
#[derive(Debug)]
pub(crate) struct TerminalDevice(File);

impl TerminalDevice {
    /// The controlling terminal; nothing if there is none.
    pub(crate) fn open() -> Option<Self> {
        OpenOptions::new().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// How it is set.
    pub(crate) fn modes(&self) -> io::Result<TerminalModes> {
        Ok(tcgetattr(&self.0)?)
    }

    /// Gives it back as it was.
    pub(crate) fn restore(&self, before: &TerminalModes) {
        let _ = tcsetattr(&self.0, OptionalActions::Now, before);
    }

    /// Prepares it for a line, which is shown while it is typed if it is read aloud.
    pub(crate) fn await_line(&self, before: &TerminalModes, aloud: bool) -> io::Result<()> {
        let mut modes = before.clone();
        modes.local_modes.set(LocalModes::ECHO, aloud);
        // Ctrl-C ends the line instead of this program, which would leave the terminal as it is now.
        modes.local_modes.remove(LocalModes::ISIG);
        modes.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        // Flushed: what was typed before the question is no answer to it.
        Ok(tcsetattr(&self.0, OptionalActions::Flush, &modes)?)
    }

    /// Prepares it for single keys, which aren't shown. What was typed until now is thrown away.
    pub(crate) fn await_keys(&self, before: &TerminalModes) -> io::Result<()> {
        let mut modes = before.clone();
        // Ctrl-C is a key, and Ctrl-Z does nothing: a shell would be left with these modes.
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        Ok(tcsetattr(&self.0, OptionalActions::Flush, &modes)?)
    }

    /// Reads a part of a line, or keys.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Shows a text.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        (&self.0).write_all(text.as_bytes())
    }
}

/// The columns and rows of the terminal at standard output or standard error.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stderr())).ok()?;
    Some((size.ws_col, size.ws_row))
}
