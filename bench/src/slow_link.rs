//! A slow link to a command: every byte of its standard input and output is held for a while.

use std::io::{Read, Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};

/// How long a byte is on its way, each way.
const DELAY: Duration = Duration::from_millis(50);

/// Runs the command until it writes no more.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let (program, arguments) = words.split_first().ok_or_else(|| Error::new("no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().while_doing(program)?;
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::new("a command without pipes"));
    };
    // Ends with the program.
    carry(stdin(), to);
    let _ = carry(from, stdout()).join();
    child.wait()?;
    Ok(())
}

/// Carries one direction to its end.
fn carry(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> JoinHandle<()> {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let bytes = buffer.get(..count).unwrap_or_default().to_vec();
            if sender.send((Instant::now() + DELAY, bytes)).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    })
}
