//! The bridge's side of its control socket: answers whoever asks.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::{Reply, Request, receive, send};
use crate::supervisor::managed_bridge::ManagedBridge;
use crate::supervisor::state::StateFolder;
use crate::{Error, Result};

/// How long the last answers may take to be read.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How many may ask at once; further ones wait in the socket's queue.
const MOST_ASKERS: usize = 64;

/// Answers questions for as long as the bridge lives. Dropping it closes the socket.
pub(in crate::supervisor) struct ControlServer {
    end: watch::Sender<Option<Reply>>,
    task: JoinHandle<()>,
}

impl ControlServer {
    /// Makes the control socket. The folder's lock is ours, so a socket that is there is left of a
    /// bridge that died.
    pub(in crate::supervisor) fn open(
        folder: &StateFolder,
        bridge: Rc<ManagedBridge>,
    ) -> Result<Self> {
        let path = folder.control_socket();
        let failed = |error: io::Error| Error::failed(format!("{}: {error}", path.display()));
        folder.clear();
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let (end, ended) = watch::channel(None);
        let task = tokio::task::spawn_local(serve(listener, bridge, ended));
        Ok(Self { end, task })
    }

    /// Tells those who asked for the end how that went, and closes.
    pub(in crate::supervisor) async fn close(self, answer: Reply) {
        self.end.send_replace(Some(answer));
        let Self { mut task, .. } = self;
        if timeout(LAST_ANSWERS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn serve(
    listener: UnixListener,
    bridge: Rc<ManagedBridge>,
    ended: watch::Receiver<Option<Reply>>,
) {
    let mut askers = JoinSet::new();
    let mut is_over = ended.clone();
    loop {
        tokio::select! {
            _ = is_over.wait_for(Option::is_some) => break,
            Some(_) = askers.join_next() => {}
            accepted = listener.accept(), if askers.len() < MOST_ASKERS => match accepted {
                Ok((stream, _)) if is_ours(&stream) => {
                    let (bridge, ended) = (Rc::clone(&bridge), ended.clone());
                    askers.spawn_local(async move {
                        if let Err(error) = answer(stream, &bridge, ended).await {
                            tracing::debug!(%error, "a question on the control socket");
                        }
                    });
                }
                Ok(_) => tracing::warn!("another user tried the control socket"),
                Err(error) => {
                    tracing::error!(%error, "the control socket");
                    break;
                }
            },
        }
    }
    drop(listener);
    while askers.join_next().await.is_some() {}
}

fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn answer(
    mut stream: UnixStream,
    bridge: &ManagedBridge,
    mut ended: watch::Receiver<Option<Reply>>,
) -> io::Result<()> {
    let question = match receive(&mut stream).await {
        Ok(Some(question)) => question,
        Ok(None) => return Ok(()),
        Err(error) => {
            let answer = Error::failed(format!("this bridge doesn't know the question: {error}"))
                .hint("it may be of another version: keybridge down, then up");
            return send(&mut stream, &Reply::Failed(answer)).await;
        }
    };
    let answer = match question {
        Request::Status => Reply::Status(bridge.status()),
        Request::Up { gnupg_home, ssh_auth_sock, ssh_keys, git, lending } => {
            match bridge.lend(ssh_keys, lending).await {
                Ok(()) => Reply::Status(bridge.up(gnupg_home, ssh_auth_sock, git).await),
                Err(error) => Reply::Failed(error),
            }
        }
        Request::Sync => match bridge.sync(None).await {
            Ok((changes, _)) => Reply::Synced {
                new: changes.new,
                updated: changes.updated,
                unchanged: changes.unchanged,
            },
            Err(error) => Reply::Failed(error),
        },
        Request::Stop => {
            bridge.stop();
            let ended = ended.wait_for(Option::is_some).await;
            ended.ok().and_then(|answer| answer.clone()).unwrap_or(Reply::Done)
        }
    };
    send(&mut stream, &answer).await
}
