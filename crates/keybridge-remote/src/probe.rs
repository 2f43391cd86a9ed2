//! Asks the agents through the sockets of the lanes, as any client does.

mod gpg;
mod ssh;

use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::report::ProbeResult;
use keybridge_proto::{Lane, printable};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::place::Place;

/// Longer than the host takes to find that its agent can't be reached.
const PATIENCE: Duration = Duration::from_secs(15);

/// What came of asking instead of an answer.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    TooLate,
    #[error("the agent hung up")]
    HungUp,
    #[error("the agent refuses, or there is none")]
    Refused,
    #[error("the agent answered {0}")]
    Answer(String),
}

/// What is asked through the sockets of a bridge: gpg-agent its version, an ssh-agent how many keys it
/// has.
pub(crate) struct Question(Vec<(Lane, PathBuf)>);

impl Question {
    /// Asks where these are served.
    pub(crate) fn of(places: &[Place]) -> Self {
        let socket = |place: &Place| (place.home().lane(), place.socket().path().to_owned());
        Self(places.iter().map(socket).collect())
    }

    /// Asks one after the other.
    pub(crate) async fn ask(&self) -> Vec<ProbeResult> {
        let mut answers = Vec::new();
        for (lane, socket) in &self.0 {
            let asked = timeout(PATIENCE, ask(*lane, socket)).await;
            let outcome = asked.unwrap_or(Err(ProbeError::TooLate)).map_err(|error| match error {
                ProbeError::Io(error) => {
                    format!("{}: {error}", printable(socket.as_os_str().as_encoded_bytes()))
                }
                ProbeError::TooLate
                | ProbeError::HungUp
                | ProbeError::Refused
                | ProbeError::Answer(_) => error.to_string(),
            });
            answers.push(ProbeResult { lane: *lane, outcome });
        }
        answers
    }
}

async fn ask(lane: Lane, socket: &Path) -> Result<String, ProbeError> {
    let stream = UnixStream::connect(socket).await?;
    match lane {
        Lane::Gpg => gpg::ask(stream).await,
        Lane::Ssh => ssh::ask(stream).await,
    }
}
