//! The log, on standard error. If it isn't read, lines are lost, but the bridge never blocks or ends.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::Level;

/// A pipe that can be written to takes as much without blocking.
const PIECE: usize = 4096;

/// How long a reader that has kept up so far may block us.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether the reader was so slow that lines are now dropped at once.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Starts the log, with everything of this level and above.
pub(crate) fn start(level: Level) {
    tracing_subscriber::fmt()
        .with_writer(|| StderrLog)
        .with_max_level(level)
        .with_target(false)
        .without_time()
        .init();
}

struct StderrLog;

impl Write for StderrLog {
    /// Accepts everything, even if it can't be written.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        for mut piece in text.chunks(PIECE) {
            while !piece.is_empty() && is_writable(&stderr) {
                match rustix::io::write(&stderr, piece) {
                    Ok(count) => piece = piece.get(count..).unwrap_or_default(),
                    Err(Errno::INTR) => {}
                    Err(_) => return Ok(text.len()),
                }
            }
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_writable(file: &impl AsFd) -> bool {
    let time = if STUCK.load(Ordering::Relaxed) { NO_TIME } else { PATIENCE };
    let mut waiting = [PollFd::new(file, PollFlags::OUT)];
    let writable = loop {
        match poll(&mut waiting, Some(&time)) {
            Ok(count) => break count > 0,
            Err(Errno::INTR) => {}
            Err(_) => break false,
        }
    };
    STUCK.store(!writable, Ordering::Relaxed);
    writable
}
