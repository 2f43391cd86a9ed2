//! Asking the agents through the sockets of the lanes, as any client does.

mod gpg;
mod ssh;

use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::report::ProbeResult;
use keybridge_proto::{Lane, printable};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::lanes::running_lane::RunningLane;

/// Longer than the host takes to find that its agent can't be reached.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why an agent didn't answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentCheckError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("the agent didn't answer within {} s", PATIENCE.as_secs())]
    TooLate,
    #[error("the agent hung up")]
    HungUp,
    #[error("the agent refuses, or there is none")]
    Refused,
    #[error("expected the agent's version, got only {0}")]
    NoVersion(String),
    #[error("unexpected answer: {0}")]
    Unexpected(String),
}

/// What is asked through the sockets of a bridge: gpg-agent its version, an ssh-agent how many keys it
/// has.
pub(crate) struct AgentCheck(Vec<(Lane, PathBuf)>);

impl AgentCheck {
    /// Asks at the sockets of these lanes.
    pub(crate) fn of<'a>(lanes: impl Iterator<Item = &'a RunningLane>) -> Self {
        let socket = |running: &RunningLane| {
            (running.discovered().lane(), running.socket().path().to_owned())
        };
        Self(lanes.map(socket).collect())
    }

    /// Asks one after the other.
    pub(crate) async fn ask(&self) -> Vec<ProbeResult> {
        let mut answers = Vec::new();
        for (lane, socket) in &self.0 {
            let asked = timeout(PATIENCE, ask(*lane, socket)).await;
            let outcome =
                asked.unwrap_or(Err(AgentCheckError::TooLate)).map_err(|error| match error {
                    AgentCheckError::Io(error) => {
                        format!("{}: {error}", printable(socket.as_os_str().as_encoded_bytes()))
                    }
                    AgentCheckError::TooLate
                    | AgentCheckError::HungUp
                    | AgentCheckError::Refused
                    | AgentCheckError::NoVersion(_)
                    | AgentCheckError::Unexpected(_) => error.to_string(),
                });
            answers.push(ProbeResult { lane: *lane, outcome });
        }
        answers
    }
}

/// Asks one agent: gpg-agent's version, or the number of an ssh-agent's keys.
pub(crate) async fn ask(lane: Lane, socket: &Path) -> Result<String, AgentCheckError> {
    let stream = UnixStream::connect(socket).await?;
    match lane {
        Lane::Gpg => gpg::ask(stream).await,
        Lane::Ssh => ssh::ask(stream).await,
    }
}
