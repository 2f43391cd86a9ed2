//! How a bridge in the background is talked to: a line of JSON each way, over a socket that only
//! its user can reach.

mod server;

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::status::BridgeStatus;
use crate::keyring::Lending;
use crate::{Error, Result};
pub(super) use server::ControlServer;

/// What a bridge is asked.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// How it is.
    Status,
    /// To say when it is ready, or why it isn't; with what the caller's `up` would lend.
    Up {
        /// GnuPG's home at the caller's; empty for the default one.
        gnupg_home: PathBuf,
        /// `SSH_AUTH_SOCK` at the caller's; empty if it isn't set.
        #[serde(default)]
        ssh_auth_sock: PathBuf,
        /// What the caller said about the keys of the ssh-agent, if it did.
        #[serde(default)]
        ssh_keys: Option<Vec<String>>,
        /// Whether git in the target is to sign.
        #[serde(default)]
        git: bool,
        /// Which keys are lent, as far as the caller says so.
        #[serde(default)]
        lending: Lending,
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
    /// What a sync changed.
    Synced {
        /// Keys that were not there.
        new: u32,
        /// Keys that got something.
        updated: u32,
        /// Keys that were there as they are.
        unchanged: u32,
    },
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

/// The longest line; a status is well below it.
pub(super) const LINE_LIMIT: u64 = 64 * 1024;

/// Undoing may take as long as the helper is given, and an import a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// A bridge that has its lock makes its socket at once.
const STARTING_TIME: Duration = Duration::from_secs(1);

/// A bridge that is asked how it is answers at once.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// Asks a bridge, and waits until it answers.
pub(super) async fn ask(socket: &Path, question: &Request) -> Result<Reply> {
    let failed = |error: &dyn Display| Error::failed(format!("{}: {error}", socket.display()));
    let exchange = async {
        let mut stream = connect(socket).await?;
        send(&mut stream, question).await?;
        receive(&mut stream).await
    };
    let patience = match question {
        Request::Status => STATUS_PATIENCE,
        Request::Up { .. } | Request::Sync | Request::Stop => PATIENCE,
    };
    let answer = tokio::time::timeout(patience, exchange).await;
    let answer = answer.map_err(|_| failed(&"the bridge doesn't answer"))?;
    match answer.map_err(|error| failed(&error))? {
        None => Err(failed(&"the bridge ended before it answered")),
        Some(Reply::Failed(error)) => Err(error),
        Some(
            answer @ (Reply::Status(_) | Reply::Synced { .. } | Reply::Done | Reply::Noted { .. }),
        ) => Ok(answer),
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
