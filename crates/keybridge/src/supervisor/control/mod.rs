//! How a bridge in the background is talked to: a line of JSON each way, over a socket that only
//! its user can reach.

mod server;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use keybridge_proto::printable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::state::StateFolder;
use super::{BridgeStatus, DownOutcome};
use crate::config::{Invocation, Options};
use crate::{Error, Result};
pub(super) use server::ControlServer;

/// What a bridge is asked.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// How it is.
    Status,
    /// To take over what the caller of `up` names, and to say when it is ready, or why it isn't.
    Up {
        /// What the caller asks for.
        invocation: Invocation,
    },
    /// To send the public keys again.
    Sync,
    /// To end, and to undo what it changed.
    Stop,
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "answer", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Reply {
    /// How it is.
    Status(BridgeStatus),
    /// It has taken over what a caller of `up` names, and works.
    Up(TakenOver),
    /// What a sync changed.
    Synced(Synced),
    /// It was done.
    Done,
    /// It ends, and what it did in the target will be undone when that can be reached.
    Noted {
        /// Why it can't be reached.
        why: String,
    },
    /// It failed.
    Failed(Error),
}

/// A bridge after another `up`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct TakenOver {
    /// How it is.
    pub status: BridgeStatus,
    /// What is set now.
    pub options: Options,
    /// What the caller is to know.
    pub warnings: Vec<String>,
}

/// What public keys that were sent again have changed in the target.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Synced {
    /// Keys that were not there.
    pub new: u32,
    /// Keys that got something.
    pub updated: u32,
    /// Keys that were there as they are.
    pub unchanged: u32,
    /// What was asked for and isn't sent.
    pub warnings: Vec<String>,
}

/// The longest line. A status is well below it; settings can be as long as an argument of a program,
/// which Linux cuts at 128 KiB.
pub(super) const LINE_LIMIT: u64 = 256 * 1024;

/// Undoing may take as long as the helper is given, and an import a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// A bridge that has its lock makes its socket at once.
const STARTING_TIME: Duration = Duration::from_secs(1);

/// A bridge that is asked how it is answers at once.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// Asks a bridge how it is.
pub(super) async fn status(folder: &StateFolder) -> Result<BridgeStatus> {
    match ask(&folder.control_socket(), &Request::Status).await? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}

/// Has a bridge take over what a caller of `up` names, and waits until it works or can't.
pub(super) async fn up(folder: &StateFolder, invocation: &Invocation) -> Result<TakenOver> {
    let request = Request::Up { invocation: invocation.clone() };
    match ask(&folder.control_socket(), &request).await? {
        Reply::Up(taken_over) => Ok(taken_over),
        other => Err(unexpected(&other)),
    }
}

/// Has a bridge send the public keys again.
pub(super) async fn sync(folder: &StateFolder) -> Result<Synced> {
    match ask(&folder.control_socket(), &Request::Sync).await? {
        Reply::Synced(synced) => Ok(synced),
        other => Err(unexpected(&other)),
    }
}

/// Has a bridge end. It answers when everything is undone, or why that has to wait.
pub(super) async fn stop(folder: &StateFolder) -> Result<DownOutcome> {
    match ask(&folder.control_socket(), &Request::Stop).await? {
        Reply::Done => Ok(DownOutcome::Undone),
        Reply::Noted { why } => Ok(DownOutcome::Later(why)),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> Error {
    let reply = serde_json::to_string(reply).unwrap_or_default();
    Error::failed(format!("unexpected answer from the bridge: {}", printable(&reply)))
        .hint("it may be of another version: keybridge down, then up")
}

/// Asks a bridge, and waits until it answers.
async fn ask(socket: &Path, request: &Request) -> Result<Reply> {
    let failed = |error: &dyn Display| Error::failed(format!("{}: {error}", socket.display()));
    let exchange = async {
        let mut stream = connect(socket).await?;
        send(&mut stream, request).await?;
        receive(&mut stream).await
    };
    let patience = match request {
        Request::Status => STATUS_PATIENCE,
        Request::Up { .. } | Request::Sync | Request::Stop => PATIENCE,
    };
    let answer = tokio::time::timeout(patience, exchange).await;
    let answer = answer.map_err(|_| failed(&"no answer from the bridge"))?;
    match answer.map_err(|error| failed(&error))? {
        None => Err(failed(&"the bridge ended before it answered")),
        Some(Reply::Failed(error)) => Err(error),
        Some(answer) => Ok(answer),
    }
}

/// Connects to a bridge that may just be starting: it takes its lock before it can be talked to.
async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if is_absence(&error) && start.elapsed() < STARTING_TIME => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            connected => return connected,
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Writes a line.
async fn send(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// Reads a line; `None` at the end.
async fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_LIMIT)).read_until(b'\n', &mut line).await?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}
