//! The newer helper: it asks an older one of the same bridge for its sockets and its lock.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::message::{self, Message};
use super::{GONE, HandedOver, TAKEN, check_peer, path_in};
use crate::BridgeToken;
use crate::socket::long_path::ShortSocketPath;

/// What the older helper replied.
pub(crate) enum HandoverReply {
    /// It has handed over.
    HandedOver(HandedOver),
    /// It belongs to another bridge.
    Refused,
    /// It didn't answer, or not completely.
    Nothing,
}

/// Asks the helper that works in this folder to hand over.
pub(crate) async fn ask(home: &Path, bridge: &BridgeToken, patience: Duration) -> HandoverReply {
    match timeout(patience, talk(home, bridge)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::debug!(%error, "can't ask the older helper");
            HandoverReply::Nothing
        }
        Err(_) => HandoverReply::Nothing,
    }
}

async fn talk(home: &Path, bridge: &BridgeToken) -> io::Result<HandoverReply> {
    let address = ShortSocketPath::of(&path_in(home))?;
    let mut stream = UnixStream::connect(address.path()).await?;
    check_peer(&stream)?;
    stream.write_all(format!("TAKE {bridge}\n").as_bytes()).await?;
    let handed = match message::receive(&stream).await? {
        Message::Accepted(handed) => handed,
        Message::Refusal => return Ok(HandoverReply::Refused),
    };
    stream.write_all(TAKEN).await?;
    let mut answer = [0; GONE.len()];
    stream.read_exact(&mut answer).await?;
    if answer == *GONE {
        Ok(HandoverReply::HandedOver(handed))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}
