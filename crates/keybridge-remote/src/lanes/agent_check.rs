//! Asking the agents through the sockets of the lanes, as any client does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_link::{GpgQuestions, LocalSocket, QuestionError, ask_ssh_agent};
use keybridge_proto::assuan::unescape;
use keybridge_proto::report::ProbeResult;
use keybridge_proto::ssh::{Frame, Request, Response};
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
    Question(#[from] QuestionError),
    #[error("the agent didn't answer within {} s", PATIENCE.as_secs())]
    TooLate,
    #[error("the agent refuses, or there is none")]
    Refused,
    #[error("expected the agent's version, got only {}", printable(.0))]
    NoVersion(String),
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
        // Nothing is signed only to see whether that works.
        let has_agent = |running: &&RunningLane| running.discovered().lane() != Lane::Git;
        Self(lanes.filter(has_agent).map(socket).collect())
    }

    /// Asks one after the other.
    pub(crate) async fn ask(&self) -> Vec<ProbeResult> {
        let mut answers = Vec::new();
        for (lane, socket) in &self.0 {
            let asked = timeout(PATIENCE, ask(*lane, socket)).await;
            let outcome =
                asked.unwrap_or(Err(AgentCheckError::TooLate)).map_err(|error| match error {
                    AgentCheckError::Question(QuestionError::Io(error)) => {
                        format!("{}: {error}", printable(socket.as_os_str().as_encoded_bytes()))
                    }
                    AgentCheckError::Question(_)
                    | AgentCheckError::TooLate
                    | AgentCheckError::Refused
                    | AgentCheckError::NoVersion(_) => error.to_string(),
                });
            answers.push(ProbeResult { lane: *lane, outcome });
        }
        answers
    }
}

/// Asks one agent: gpg-agent's version, or the number of an ssh-agent's keys.
pub(crate) async fn ask(lane: Lane, socket: &Path) -> Result<String, AgentCheckError> {
    let stream = UnixStream::connect(socket).await.and_then(LocalSocket::new);
    let agent = stream.map_err(QuestionError::Io)?;
    match lane {
        Lane::Gpg => ask_gpg(agent).await,
        Lane::Ssh => ask_ssh(agent).await,
        Lane::Git => Err(AgentCheckError::Refused),
    }
}

/// The version of the agent that answers at the far end.
async fn ask_gpg(agent: LocalSocket) -> Result<String, AgentCheckError> {
    let mut agent = GpgQuestions::greeted(agent).await?;
    let lines = agent.ask("GETINFO version").await?.map_err(AgentCheckError::NoVersion)?;
    let data = lines.iter().find_map(|line| line.strip_prefix("D "));
    let version = data.and_then(|data| unescape(data.as_bytes()).ok());
    let version = version.ok_or_else(|| AgentCheckError::NoVersion("OK".to_owned()))?;
    // A clean end, so that the far side has nothing to complain about.
    let _ = agent.ask("BYE").await;
    Ok(printable(&version).to_string())
}

/// How many keys the agent at the far end has.
async fn ask_ssh(mut agent: LocalSocket) -> Result<String, AgentCheckError> {
    let answer = ask_ssh_agent(&mut agent, &Request::LIST).await?;
    let unexpected = |what: String| Err(QuestionError::Unexpected(what).into());
    let frame = match Frame::parse(&answer) {
        Ok(Some((frame, _))) => frame,
        Ok(None) => return Err(QuestionError::HungUp.into()),
        Err(error) => return unexpected(error.to_string()),
    };
    match Response::read(&frame) {
        Ok(Response::Identities(keys)) => Ok(keys.len().to_string()),
        Ok(Response::Failure) => Err(AgentCheckError::Refused),
        Ok(
            Response::Success
            | Response::Signature(_)
            | Response::ExtensionFailure
            | Response::ExtensionResponse(_)
            | Response::Unknown(_),
        )
        | Err(_) => unexpected(format!("a frame of type {}", frame.kind().0)),
    }
}
