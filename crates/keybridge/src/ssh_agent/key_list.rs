//! Lists the keys of an ssh-agent on the host's own behalf.

use std::io;

use keybridge_link::ask_ssh_agent;
use keybridge_proto::ssh::{Frame, Identities, Request, Response};

use crate::agent::AgentStream;

/// The keys of an agent, as it listed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyList(Vec<u8>);

/// Why an agent's keys could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum KeyListError {
    /// The connection failed, or what came isn't a frame.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The agent answered with a failure.
    #[error("it refuses to list its keys")]
    Refused,
    /// The answer is of another type.
    #[error("it doesn't speak ssh-agent's protocol")]
    NotAnAgent,
}

impl KeyList {
    /// Asks an agent for its keys.
    pub(crate) async fn ask(stream: &mut AgentStream) -> Result<Self, KeyListError> {
        let list = Self(ask_ssh_agent(stream, &Request::LIST).await.map_err(io::Error::from)?);
        let frame = Frame::parse(&list.0).map_err(io::Error::other)?;
        match frame.map(|(frame, _)| Response::read(&frame)) {
            Some(Ok(Response::Identities(_))) => Ok(list),
            Some(Ok(Response::Failure)) => Err(KeyListError::Refused),
            Some(Ok(_) | Err(_)) | None => Err(KeyListError::NotAnAgent),
        }
    }

    /// The keys.
    pub fn identities(&self) -> Identities<'_> {
        match Frame::parse(&self.0).map(|frame| frame.map(|(frame, _)| Response::read(&frame))) {
            Ok(Some(Ok(Response::Identities(identities)))) => identities,
            // `ask` has checked it.
            Ok(_) | Err(_) => Identities::default(),
        }
    }
}
