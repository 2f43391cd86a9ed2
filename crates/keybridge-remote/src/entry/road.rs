//! The way to the helper that serves the git lane: its socket, or its pipes where a sandbox forbids sockets.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use keybridge_proto::git::{Answer, frame_size};

use super::pipe_slot::{self, PipeSlot};
use super::{ONLY_SANDBOXES, SOCKET};

/// What sandboxes of coding agents set.
const SANDBOX_MARKS: [&str; 2] = ["SANDBOX_RUNTIME", "CODEX_SANDBOX_NETWORK_DISABLED"];

/// A connection to the helper.
pub(super) enum Road {
    Socket(UnixStream),
    Pipes(PipeSlot),
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoad {
    /// No bridge is there, or none that is for entries outside of a sandbox.
    NoBridge,
    /// No bridge is there, and this is a sandbox.
    NoBridgeForSandbox,
    /// The sandbox forbids the pipes too.
    Forbidden,
    /// As many as there may be are served.
    Busy,
}

/// Connects.
pub(super) fn connect(folder: &Path) -> Result<Road, NoRoad> {
    match UnixStream::connect(folder.join(SOCKET)) {
        Ok(_) if folder.join(ONLY_SANDBOXES).exists() => Err(NoRoad::NoBridge),
        Ok(socket) => Ok(Road::Socket(socket)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            pipe_slot::take(folder).map(Road::Pipes)
        }
        Err(_) if SANDBOX_MARKS.iter().any(|mark| std::env::var_os(mark).is_some()) => {
            Err(NoRoad::NoBridgeForSandbox)
        }
        Err(_) => Err(NoRoad::NoBridge),
    }
}

impl Road {
    /// Sends a request, and waits for the answer. A person may be asked meanwhile.
    pub(super) fn ask(self, frame: &[u8]) -> io::Result<Answer> {
        let answer = match self {
            Self::Socket(socket) => ask_socket(socket, frame)?,
            Self::Pipes(slot) => slot.ask(frame)?,
        };
        Answer::decode(&answer).map_err(invalid)
    }
}

fn ask_socket(mut socket: UnixStream, frame: &[u8]) -> io::Result<Vec<u8>> {
    // One that is not let in has an answer, and reads nothing.
    let sent = socket.write_all(frame);
    let mut answer = Vec::new();
    loop {
        let missing = match frame_size(&answer).map_err(invalid)? {
            Some(size) if size == answer.len() => return Ok(answer),
            Some(size) => size - answer.len(),
            None => 4 - answer.len(),
        };
        let count = (&mut socket).take(missing as u64).read_to_end(&mut answer)?;
        if count == 0 {
            return Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        }
    }
}

pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
