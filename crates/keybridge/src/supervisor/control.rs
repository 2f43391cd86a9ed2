//! How a bridge in the background is talked to: a line of JSON each way, over a socket that only
//! its user can reach.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::status::BridgeStatus;
use crate::{Error, Result};

/// What a bridge is asked.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// How it is.
    Status,
    /// To say when it is ready, or why it isn't.
    Wait,
    /// To send the public keys again.
    Sync,
    /// To end, and to undo what it changed.
    Stop,
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// How it is.
    Status(BridgeStatus),
    /// What a sync changed.
    Synced {
        /// Keys that were not there.
        new: u32,
        /// Keys that got something.
        updated: u32,
        /// Keys that were there as they are.
        unchanged: u32,
    },
    /// It was done.
    Done,
    /// It failed.
    Failed(Error),
}

/// The longest line; a status is well below it.
pub(super) const LINE_LIMIT: u64 = 64 * 1024;

/// Undoing may take as long as the helper is given, and an import a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// Asks a bridge; blocks until it answers.
pub fn ask(socket: &Path, question: &Question) -> Result<Answer> {
    let failed = |error: &dyn std::fmt::Display| Error::failed(format!("{}: {error}", socket.display()));
    let stream = UnixStream::connect(socket).map_err(|error| failed(&error))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| failed(&error))?;
    let mut line = serde_json::to_vec(question).map_err(|error| failed(&error))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(|error| failed(&error))?;
    let mut answer = String::new();
    let read = BufReader::new((&stream).take(LINE_LIMIT)).read_line(&mut answer);
    read.map_err(|error| failed(&error))?;
    if answer.is_empty() {
        return Err(failed(&"the bridge ended before it answered"));
    }
    match serde_json::from_str(&answer).map_err(|error| failed(&error))? {
        Answer::Failed(error) => Err(error),
        answer @ (Answer::Status(_) | Answer::Synced { .. } | Answer::Done) => Ok(answer),
    }
}
