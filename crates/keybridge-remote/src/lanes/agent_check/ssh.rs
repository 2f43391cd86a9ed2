//! An ssh-agent is asked for its keys.

use keybridge_proto::ssh::{Frame, MAX_FRAME, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::AgentCheckError;

/// How many keys the agent at the far end has.
pub(super) async fn ask(mut stream: UnixStream) -> Result<String, AgentCheckError> {
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
            return read(&frame);
        }
    }
}

fn read(frame: &Frame<'_>) -> Result<String, AgentCheckError> {
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
