//! Asks the agents through their sockets, as any client does.

mod gpg;
mod ssh;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::{Lane, printable};

/// Longer than the host takes to find that its agent can't be reached.
const PATIENCE: Duration = Duration::from_secs(15);

/// What came of asking instead of an answer.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("the agent hung up")]
    HungUp,
    #[error("the agent refuses, or there is none")]
    Refused,
    #[error("the agent answered {0}")]
    Answer(String),
}

/// A line for each socket, with what the agent at its far end says: gpg-agent its version, an ssh-agent
/// how many keys it has.
pub(crate) fn run(sockets: &[(Lane, PathBuf)]) -> String {
    let line = |(lane, socket): &(Lane, PathBuf)| match ask(*lane, socket) {
        Ok(answer) => format!("{lane} answers {answer}\n"),
        Err(ProbeError::Io(error)) => {
            let socket = printable(socket.as_os_str().as_encoded_bytes());
            format!("{lane} fails {socket}: {error}\n")
        }
        Err(error @ (ProbeError::HungUp | ProbeError::Refused | ProbeError::Answer(_))) => {
            format!("{lane} fails {error}\n")
        }
    };
    sockets.iter().map(line).collect()
}

fn ask(lane: Lane, socket: &Path) -> Result<String, ProbeError> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match lane {
        Lane::Gpg => gpg::ask(&stream),
        Lane::Ssh => ssh::ask(&stream),
    }
}
