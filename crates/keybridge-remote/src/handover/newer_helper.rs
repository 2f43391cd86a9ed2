//! The newer helper's side.

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

/// What came of asking.
pub(crate) enum HandoverReply {
    /// The place is ours.
    HandedOver(HandedOver),
    /// It is the place of another bridge.
    Refused,
    /// Nobody answers, or not to the end.
    Nothing,
}

/// Asks the helper that has this home for its place.
pub(crate) async fn ask(home: &Path, bridge: &BridgeToken, patience: Duration) -> HandoverReply {
    match timeout(patience, talk(home, bridge)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::debug!(%error, "asking the helper before this one");
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
