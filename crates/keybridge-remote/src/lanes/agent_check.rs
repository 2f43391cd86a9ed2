//! Asking the agents through the sockets of the lanes, as any client does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::assuan::{MAX_LINE, ResponseLine, content, unescape};
use keybridge_proto::report::ProbeResult;
use keybridge_proto::ssh::{Frame, MAX_FRAME, Request, Response};
use keybridge_proto::{Lane, printable};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
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
        Lane::Gpg => ask_gpg(stream).await,
        Lane::Ssh => ask_ssh(stream).await,
        Lane::Git => Err(AgentCheckError::Refused),
    }
}

/// The version of the agent that answers at the far end.
async fn ask_gpg(stream: UnixStream) -> Result<String, AgentCheckError> {
    let mut stream = BufReader::new(stream);
    expect_ok(&read_line(&mut stream).await?)?;
    stream.write_all(b"GETINFO version\n").await?;
    let answer = read_line(&mut stream).await?;
    let version = answer.strip_prefix(b"D ").map(content).and_then(|data| unescape(data).ok());
    let Some(version) = version else {
        return Err(AgentCheckError::NoVersion(printable(content(&answer)).to_string()));
    };
    expect_ok(&read_line(&mut stream).await?)?;
    // A clean end, so that the far side has nothing to complain about.
    stream.write_all(b"BYE\n").await?;
    read_line(&mut stream).await?;
    Ok(printable(&version).to_string())
}

async fn read_line(lines: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(MAX_LINE as u64).read_until(b'\n', &mut line).await?;
    Ok(line)
}

fn expect_ok(line: &[u8]) -> Result<(), AgentCheckError> {
    match ResponseLine::parse(line) {
        Ok(ResponseLine::Ok) => Ok(()),
        Ok(_) | Err(_) if line.is_empty() => Err(AgentCheckError::HungUp),
        Ok(_) | Err(_) => Err(AgentCheckError::Unexpected(printable(content(line)).to_string())),
    }
}

/// How many keys the agent at the far end has.
async fn ask_ssh(mut stream: UnixStream) -> Result<String, AgentCheckError> {
    stream.write_all(&Request::LIST).await?;
    let mut answer = Vec::new();
    let mut input = stream.take(MAX_FRAME as u64 + 4);
    let mut buffer = [0; 4096];
    loop {
        let count = input.read(&mut buffer).await?;
        if count == 0 {
            return Err(AgentCheckError::HungUp);
        }
        answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let whole = Frame::parse(&answer)
            .map_err(|error| AgentCheckError::Unexpected(error.to_string()))?;
        if let Some((frame, _)) = whole {
            return count_of(&frame);
        }
    }
}

fn count_of(frame: &Frame<'_>) -> Result<String, AgentCheckError> {
    match Response::read(frame) {
        Ok(Response::Identities(keys)) => Ok(keys.len().to_string()),
        Ok(Response::Failure) => Err(AgentCheckError::Refused),
        Ok(
            Response::Success
            | Response::Signature(_)
            | Response::ExtensionFailure
            | Response::ExtensionResponse(_)
            | Response::Unknown(_),
        )
        | Err(_) => Err(AgentCheckError::Unexpected(format!("a frame of type {}", frame.kind().0))),
    }
}
