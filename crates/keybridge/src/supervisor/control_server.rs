//! The bridge's end of its control socket.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::LocalStream;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::asking::Asked;
use crate::platform::{LocalListener, PeerUser};
use crate::supervisor::DownOutcome;
use crate::supervisor::control::{Reply, Request, receive, send};
use crate::supervisor::managed_bridge::ManagedBridge;
use crate::supervisor::state::StateFolder;
use crate::{Error, Result};

/// How long the last answers may take to be read.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a link may take to answer one who asks for its round-trip time.
const LINK_TIME: Duration = Duration::from_secs(2);

/// How long a client may take to read a question.
const READING_TIME: Duration = Duration::from_secs(5);

/// How many clients are served at once; further ones wait in the socket's queue.
const MAX_CLIENTS: usize = 64;

/// Answers requests until the bridge ends.
pub(super) struct ControlServer {
    end: watch::Sender<Option<Reply>>,
    task: JoinHandle<()>,
}

impl ControlServer {
    /// Opens the control socket. The caller has the folder's lock, so an existing socket is that of a
    /// bridge that was killed.
    pub(super) fn open(folder: &StateFolder, bridge: Rc<ManagedBridge>) -> Result<Self> {
        let path = folder.control_socket();
        let failed = |error: io::Error| Error::failed(path.display().to_string()).caused_by(error);
        folder.remove_control_socket();
        let listener = LocalListener::bind(&path).map_err(failed)?;
        let (end, ended) = watch::channel(None);
        let task = tokio::task::spawn_local(serve(listener, bridge, ended));
        Ok(Self { end, task })
    }

    /// Answers those who asked for the end, and closes the socket.
    pub(super) async fn close(self, answer: Reply) {
        self.end.send_replace(Some(answer));
        let Self { mut task, .. } = self;
        if timeout(LAST_ANSWERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn serve(
    mut listener: LocalListener,
    bridge: Rc<ManagedBridge>,
    ended: watch::Receiver<Option<Reply>>,
) {
    let mut clients = JoinSet::new();
    let mut is_over = ended.clone();
    loop {
        tokio::select! {
            _ = is_over.wait_for(Option::is_some) => break,
            Some(_) = clients.join_next() => {}
            accepted = listener.accept(), if clients.len() < MAX_CLIENTS => match accepted {
                Ok((stream, PeerUser::Own | PeerUser::Root)) => {
                    let (bridge, ended) = (Rc::clone(&bridge), ended.clone());
                    clients.spawn_local(async move {
                        if let Err(error) = answer(stream, &bridge, ended).await {
                            tracing::debug!(%error, "answering a client of the control socket");
                        }
                    });
                }
                Ok((_, PeerUser::Other)) => {
                    tracing::warn!("refused a client of another user on the control socket");
                }
                Err(error) => {
                    tracing::error!(%error, "the control socket is closed");
                    break;
                }
            },
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

async fn answer(
    stream: LocalStream,
    bridge: &Rc<ManagedBridge>,
    mut ended: watch::Receiver<Option<Reply>>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = match receive(&mut stream).await {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(()),
        Err(error) => {
            let answer = Error::failed("the bridge can't read the request")
                .caused_by(error)
                .hint("it may be of another version: keybridge down, then up");
            return send(stream.get_mut(), &Reply::Failed(answer)).await;
        }
    };
    let answer = match request {
        Request::Status => Reply::Status(bridge.status_now().await),
        Request::Up { invocation } => match Box::pin(bridge.up(&invocation)).await {
            Ok(taken_over) => Reply::Up(taken_over),
            Err(error) => Reply::Failed(error),
        },
        Request::RoundTrip => {
            let answered = match bridge.link() {
                Some(link) => link.round_trip(LINK_TIME).await,
                None => None,
            };
            let micros = answered.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            Reply::RoundTrip { micros }
        }
        Request::Sync => match bridge.sync(None).await {
            Ok(synced) => Reply::Synced(synced),
            Err(error) => Reply::Failed(error),
        },
        Request::Follow => {
            tokio::select! {
                followed = follow(&mut stream, bridge) => return followed,
                _ = ended.wait_for(Option::is_some) => return Ok(()),
            }
        }
        Request::Answer { id, word } => match bridge.asking().answer(id, word) {
            Ok(()) => Reply::Answered,
            Err(error) => Reply::Failed(Error::failed(error.to_string())),
        },
        Request::Stop => {
            bridge.stop();
            send(stream.get_mut(), &Reply::Stopping).await?;
            let ended = ended.wait_for(Option::is_some).await;
            let undone = || Reply::Ended { outcome: DownOutcome::Undone { may_ask: false } };
            ended.ok().and_then(|answer| answer.clone()).unwrap_or_else(undone)
        }
    };
    send(stream.get_mut(), &answer).await
}

/// Tells a client of questions until it goes, which counts as a way of asking meanwhile.
async fn follow(stream: &mut BufReader<LocalStream>, bridge: &ManagedBridge) -> io::Result<()> {
    let asking = bridge.asking();
    let mut changes = asking.changes();
    let _connected = match asking.connect() {
        Ok(connected) => connected,
        Err(error) => {
            let answer = Reply::Failed(Error::failed(error.to_string()));
            return send(stream.get_mut(), &answer).await;
        }
    };
    tell(stream, Reply::Follows).await?;
    let mut told: Vec<u64> = Vec::new();
    loop {
        let waiting = asking.questions();
        let ended: Vec<u64> =
            told.extract_if(.., |id| !waiting.iter().any(|question| question.id == *id)).collect();
        for id in ended {
            tell(stream, Reply::NoLongerAsked { id, how: asking.how_ended(id) }).await?;
        }
        for question in waiting {
            if !told.contains(&question.id) {
                told.push(question.id);
                let asked = Asked::new(question, |key| bridge.key_name(key));
                tell(stream, Reply::Asked(asked)).await?;
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            // It says nothing more: this is its end.
            _ = stream.fill_buf() => return Ok(()),
        }
    }
}

/// Sends a line to a client that reads: one that is stopped is no way of asking.
async fn tell(stream: &mut BufReader<LocalStream>, reply: Reply) -> io::Result<()> {
    timeout(READING_TIME, send(stream.get_mut(), &reply)).await?
}
