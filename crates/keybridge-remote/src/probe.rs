//! Asks the agent through the socket, as any client does.

mod gpg;
mod ssh;

use std::os::unix::net::UnixStream;
use std::path::Path;
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

/// What the agent at the far end says: gpg-agent its version, an ssh-agent how many keys it has.
pub(crate) fn run(lane: Lane, socket: &Path) -> Result<String, String> {
    ask(lane, socket).map_err(|error| match error {
        ProbeError::Io(error) => {
            format!("{}: {error}", printable(socket.as_os_str().as_encoded_bytes()))
        }
        ProbeError::HungUp | ProbeError::Refused | ProbeError::Answer(_) => error.to_string(),
    })
}

fn ask(lane: Lane, socket: &Path) -> Result<String, ProbeError> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match lane {
        Lane::Gpg => gpg::ask(&stream),
        Lane::Ssh => ssh::ask(&stream),
    }
}
