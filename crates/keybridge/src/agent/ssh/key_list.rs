//! The host's own question for an agent's keys.

use std::io;

use keybridge_proto::ssh::{Frame, Identities, Request, Response};
use tokio::io::Interest;

use crate::agent::AgentStream;

/// The keys that an agent has, as it listed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyList(Vec<u8>);

impl KeyList {
    /// Asks an agent.
    pub async fn ask(stream: &mut AgentStream) -> Result<Self, String> {
        let list = Self(list(stream).await.map_err(|error| error.to_string())?);
        let frame = Frame::parse(&list.0).map_err(|error| error.to_string())?;
        match frame.map(|(frame, _)| Response::read(&frame)) {
            Some(Ok(Response::Identities(_))) => Ok(list),
            Some(Ok(Response::Failure)) => Err("it refuses to list its keys".to_owned()),
            Some(Ok(_) | Err(_)) | None => Err("it doesn't speak ssh-agent's protocol".to_owned()),
        }
    }

    /// The keys.
    pub fn identities(&self) -> Identities<'_> {
        match Frame::parse(&self.0).map(|frame| frame.map(|(frame, _)| Response::read(&frame))) {
            Ok(Some(Ok(Response::Identities(identities)))) => identities,
            // It was checked when it came.
            Ok(_) | Err(_) => Identities::default(),
        }
    }
}

/// Asks an agent for its keys, and reads one frame.
async fn list(stream: &mut AgentStream) -> io::Result<Vec<u8>> {
    write_all(stream, &Request::LIST).await?;
    let mut answer = read_exact(stream, 4).await?;
    // What is no frame is not waited for.
    Frame::parse(&answer).map_err(io::Error::other)?;
    let size = answer.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
    let body = read_exact(stream, usize::try_from(size).unwrap_or_default()).await?;
    answer.extend(body);
    Ok(answer)
}

pub(super) async fn write_all(stream: &mut AgentStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.ready(Interest::WRITABLE).await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) async fn read_exact(stream: &mut AgentStream, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        stream.ready(Interest::READABLE).await?;
        match stream.try_read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
