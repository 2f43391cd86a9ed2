//! The control socket of a bridge in the background: one request and one reply, each a line of JSON. Who
//! follows the questions gets a line for each that waits and each that ends. Only its user can connect.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use keybridge_link::LocalStream;
use keybridge_proto::permission::PersonsWord;
use keybridge_proto::printable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::lifecycle::attempt_time;
use super::state::StateFolder;
use super::{BridgeStatus, DownOutcome};
use crate::asking::{self, Asked};
use crate::config::{Invocation, Options};
use crate::platform::connect_to_listener;
use crate::{Error, Result};

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Asks for the status.
    Status,
    /// Applies the settings that the caller of `up` names; answered when the bridge is ready or has failed.
    Up {
        /// What the caller asks for.
        invocation: Box<Invocation>,
    },
    /// Asks how long the link takes.
    RoundTrip,
    /// Sends the public keys again.
    Sync,
    /// Follows the questions, and asks a person meanwhile.
    Follow,
    /// Answers a question.
    Answer {
        /// Its number.
        id: u64,
        /// What a person says.
        word: PersonsWord,
    },
    /// Ends the bridge and undoes its changes.
    Stop,
}

/// The reply.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "answer", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Reply {
    /// The status.
    Status(BridgeStatus),
    /// The bridge has applied them, and works.
    Up(TakenOver),
    /// How long a question and its answer take over the link, if it answers.
    RoundTrip {
        /// In microseconds.
        micros: Option<u64>,
    },
    /// What a sync changed.
    Synced(Synced),
    /// The client counts as a way of asking from now on.
    Follows,
    /// A question waits.
    Asked(Asked),
    /// A question has ended.
    NoLongerAsked {
        /// Its number.
        id: u64,
        /// How.
        how: asking::Ended,
    },
    /// The answer counts.
    Answered,
    /// The bridge has begun to end, which may take long in a slow target. The outcome follows.
    Stopping,
    /// The bridge ends.
    Ended {
        /// What became of the changes in its target.
        outcome: DownOutcome,
    },
    /// It failed.
    Failed(Error),
}

/// A bridge after another `up`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct TakenOver {
    /// How it is.
    pub status: BridgeStatus,
    /// What is set now.
    pub options: Options,
    /// The names of the settings that the caller has changed.
    pub changed: Vec<String>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// What public keys that were sent again have changed in the target.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Synced {
    /// Keys that were not there.
    pub new: u32,
    /// Keys that have changed.
    pub updated: u32,
    /// Keys that have not changed.
    pub unchanged: u32,
    /// What was asked for and isn't sent.
    pub warnings: Vec<String>,
}

/// The longest line. A status is well below it; settings can be as long as an argument of a program,
/// which Linux cuts at 128 KiB.
pub(super) const LINE_LIMIT: u64 = 256 * 1024;

/// How long a request may take: the helper has a minute for an import, and time to undo.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a bridge may take to open its socket after it took its lock.
const STARTING_TIME: Duration = Duration::from_secs(1);

/// How long a status may take.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// Asks a bridge how it is.
pub(crate) async fn status(folder: &StateFolder) -> Result<BridgeStatus> {
    match ask(&folder.control_socket(), &Request::Status).await? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}

/// Sends a bridge the settings that a caller of `up` names, and waits until it works or fails.
pub(super) async fn up(folder: &StateFolder, invocation: &Invocation) -> Result<TakenOver> {
    let request = Request::Up { invocation: Box::new(invocation.clone()) };
    match ask(&folder.control_socket(), &request).await? {
        Reply::Up(taken_over) => Ok(taken_over),
        other => Err(unexpected(&other)),
    }
}

/// Asks a bridge how long its link takes. `None` if the link doesn't answer.
pub(super) async fn round_trip(folder: &StateFolder) -> Result<Option<Duration>> {
    match ask(&folder.control_socket(), &Request::RoundTrip).await? {
        Reply::RoundTrip { micros } => Ok(micros.map(Duration::from_micros)),
        other => Err(unexpected(&other)),
    }
}

/// Answers a question of a bridge.
pub(crate) async fn answer(folder: &StateFolder, id: u64, word: PersonsWord) -> Result<()> {
    match ask(&folder.control_socket(), &Request::Answer { id, word }).await? {
        Reply::Answered => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// The questions of a bridge, as they come and end.
pub(crate) struct Questions(BufReader<LocalStream>);

/// What has become of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionNews {
    /// It waits.
    Asked(Box<Asked>),
    /// It has ended.
    Ended(u64, asking::Ended),
}

impl Questions {
    /// Follows those of a bridge, which then counts on a person who is there.
    pub(crate) async fn follow(folder: &StateFolder) -> Result<Self> {
        let failed = |error: io::Error| Error::failed("following the questions").caused_by(error);
        let mut stream = connect(&folder.control_socket()).await.map_err(failed)?;
        send(&mut stream, &Request::Follow).await.map_err(failed)?;
        let mut stream = BufReader::new(stream);
        match receive(&mut stream).await.map_err(failed)? {
            Some(Reply::Follows) => Ok(Self(stream)),
            Some(Reply::Failed(error)) => Err(error),
            Some(other) => Err(unexpected(&other)),
            None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Waits for news. `None` if the bridge has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<QuestionNews>> {
        match receive(&mut self.0).await.ok().flatten() {
            Some(Reply::Asked(asked)) => Ok(Some(QuestionNews::Asked(Box::new(asked)))),
            Some(Reply::NoLongerAsked { id, how }) => Ok(Some(QuestionNews::Ended(id, how))),
            Some(Reply::Failed(error)) => Err(error),
            Some(other) => Err(unexpected(&other)),
            None => Ok(None),
        }
    }
}

/// Has a bridge send the public keys again.
pub(crate) async fn sync(folder: &StateFolder) -> Result<Synced> {
    match ask(&folder.control_socket(), &Request::Sync).await? {
        Reply::Synced(synced) => Ok(synced),
        other => Err(unexpected(&other)),
    }
}

/// A bridge that has begun to end.
pub(super) struct Stopping(BufReader<LocalStream>);

/// Has a bridge end, and waits until it has begun to. There is no time limit.
pub(super) async fn stop(folder: &StateFolder) -> io::Result<Stopping> {
    let mut stream = connect(&folder.control_socket()).await?;
    send(&mut stream, &Request::Stop).await?;
    let mut stream = BufReader::new(stream);
    match receive(&mut stream).await? {
        Some(Reply::Stopping) => Ok(Stopping(stream)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Stopping {
    /// Waits until everything is undone, or can't be, or has to wait. `None` if the bridge ends before it
    /// has said that.
    pub(super) async fn outcome(mut self) -> Result<Option<DownOutcome>> {
        match receive(&mut self.0).await.ok().flatten() {
            Some(Reply::Ended { outcome }) => Ok(Some(outcome)),
            Some(Reply::Failed(error)) => Err(error),
            Some(other) => Err(unexpected(&other)),
            None => Ok(None),
        }
    }
}

fn unexpected(reply: &Reply) -> Error {
    let reply = serde_json::to_string(reply).unwrap_or_default();
    Error::failed(format!("unexpected answer from the bridge: {}", printable(&reply)))
        .hint("it may be of another version: keybridge down, then up")
}

/// Sends a request, and waits for the reply.
async fn ask(socket: &Path, request: &Request) -> Result<Reply> {
    let failed =
        |error: &dyn Display| Error::failed(format!("the bridge at {}: {error}", socket.display()));
    let exchange = async {
        let mut stream = connect(socket).await?;
        send(&mut stream, request).await?;
        receive(&mut BufReader::new(stream)).await
    };
    let patience = match request {
        Request::Status | Request::RoundTrip | Request::Answer { .. } => STATUS_PATIENCE,
        Request::Up { invocation } => PATIENCE.max(attempt_time(&invocation.questions())),
        Request::Sync | Request::Stop | Request::Follow => PATIENCE,
    };
    let answer = tokio::time::timeout(patience, exchange).await;
    let answer =
        answer.map_err(|_| failed(&format!("no answer within {} s", patience.as_secs())))?;
    match answer.map_err(|error| failed(&error))? {
        None => Err(failed(&"it ended before it answered")),
        Some(Reply::Failed(error)) => Err(error),
        Some(answer) => Ok(answer),
    }
}

/// Connects to a bridge that may still be starting: it takes its lock before it opens its socket.
async fn connect(socket: &Path) -> io::Result<LocalStream> {
    let start = Instant::now();
    loop {
        match connect_to_listener(socket).await {
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
pub(crate) async fn send(stream: &mut LocalStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// Reads a line; `None` at the end.
pub(crate) async fn receive<T: DeserializeOwned>(
    stream: &mut BufReader<LocalStream>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    stream.take(LINE_LIMIT).read_until(b'\n', &mut line).await?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}
