//! The session of one client between its socket and a stream of its own. While the link is down, gpg is
//! told at once that no agent runs, requests of ssh are refused, and entries of git see the close.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::{Link, LocalSocket, Stream, pump, reach};
use keybridge_proto::Lane;
use keybridge_proto::mux::{LinkError, OpenPace};
use keybridge_proto::session::{Limits, RequestSession, Session};
use keybridge_proto::ssh::RelaySession;
use tokio::time::{sleep_until, timeout};

use crate::StopSignal;
use crate::clients::admission::SessionLimit;
use crate::clients::git;

/// How long a client may take to read the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// What all sessions of a bridge share.
#[derive(Debug, Clone)]
pub(crate) struct SessionContext {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    pub(crate) session_limit: Rc<SessionLimit>,
    /// How fast streams are opened: the host ends a link that floods it.
    pace: Rc<OpenPace>,
}

impl SessionContext {
    pub(crate) fn new(link: Link, max_sessions: usize) -> Self {
        let limits = Limits {
            connect: Duration::from_secs(5),
            // The host has 5 s to reach its agent and 5 s for the greeting; both fit in.
            greeting: Duration::from_secs(12),
            response: None,
        };
        let session_limit = SessionLimit::new(max_sessions);
        let pace = Rc::new(OpenPace::new(Instant::now()));
        Self { link, limits, session_limit, pace }
    }

    /// Opens a stream. Streams of sessions that just ended count until the host knows.
    pub(super) async fn open(&self, lane: Lane) -> Result<Stream, OpenError> {
        if self.link.is_over() {
            return Err(OpenError::LinkDown);
        }
        if let Some(slot) = self.pace.slot(Instant::now()) {
            sleep_until(slot.into()).await;
        }
        let mut result = self.link.open(lane);
        if let Err(LinkError::TooManyStreams { .. }) = result {
            timeout(self.limits.connect, self.link.flushed())
                .await
                .map_err(|_| OpenError::Timeout)?;
            result = self.link.open(lane);
        }
        Ok(result?)
    }
}

/// Why there is no stream for a client.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("the link is down")]
    LinkDown,
    #[error("the host doesn't read")]
    Timeout,
    #[error(transparent)]
    Refused(#[from] LinkError),
}

/// Serves one client to its end, or until the lane stops.
pub(crate) async fn serve(
    lane: Lane,
    context: SessionContext,
    stop: StopSignal,
    socket: UnixStream,
) {
    let mut client = match LocalSocket::from_std(socket) {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!(%error, "can't use a client's socket");
            return;
        }
    };
    tracing::debug!("connected");
    match lane {
        Lane::Git => {
            tokio::select! {
                () = git::serve(client, &context) => {}
                () = stop.wait() => {}
            }
        }
        Lane::Gpg => {
            let mut session = RequestSession::new(context.limits);
            session.client_connected(Instant::now());
            let stream = reach(&mut client, &mut session, None, context.open(lane)).await;
            if stream.is_some() {
                session.agent_connected(Instant::now());
            }
            carry(client, session, stream, stop).await;
        }
        Lane::Ssh => {
            let mut session = RelaySession::connected();
            let stream = reach(&mut client, &mut session, None, context.open(lane)).await;
            if stream.is_some() {
                session.agent_connected();
            }
            carry(client, session, stream, stop).await;
        }
    }
}

/// Moves the bytes of a session until it is over.
async fn carry(
    mut client: LocalSocket,
    mut session: impl Session,
    stream: Option<Stream>,
    stop: StopSignal,
) {
    pump(&mut client, &mut session, stream, stop.wait(), LINGER).await;
    if let Some(error) = session.error() {
        tracing::debug!(%error, "ended");
    } else {
        tracing::debug!("ended");
    }
}
