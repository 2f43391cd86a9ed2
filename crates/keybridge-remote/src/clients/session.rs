//! The session of one client: a task that moves bytes between its socket and its stream, on either lane.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{ClientSocket, Link, Stream};
use keybridge_proto::Lane;
use keybridge_proto::mux::LinkError;
use keybridge_proto::session::Limits;
use tokio::time::timeout;

use super::{gpg_session, ssh_session};
use crate::StopSignal;
use crate::clients::session_limit::SessionLimit;

/// What one read of a client takes: many lines. A pipelining client leaves at most that much with us.
const READ_SIZE: usize = 32 * 1024;

/// How long a client may take to read the last answer.
pub(super) const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// What all sessions of a bridge share.
#[derive(Debug, Clone)]
pub(crate) struct SessionContext {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    pub(crate) session_limit: Rc<SessionLimit>,
    /// One buffer for the reads of all sessions; only what a session can't take yet is kept by it.
    pub(super) scratch: Rc<RefCell<Vec<u8>>>,
}

impl SessionContext {
    pub(crate) fn new(link: Link, max_sessions: usize) -> Self {
        let limits = Limits {
            connect: Duration::from_secs(5),
            // The host has 5 s to reach its agent and 5 s for the greeting; both fit in.
            greeting: Duration::from_secs(12),
            response: None,
        };
        let scratch = Rc::new(RefCell::new(vec![0; READ_SIZE]));
        Self { link, limits, session_limit: SessionLimit::new(max_sessions), scratch }
    }

    /// Opens a stream. Streams of sessions that just ended count until the host knows.
    pub(super) async fn open(&self, lane: Lane) -> Result<Stream, OpenError> {
        if self.link.is_over() {
            return Err(OpenError::LinkDown);
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
    // The host may only have been silent.
    let passed = stop.unless_set(context.link.pass_if_alive(lane, &socket)).await;
    if passed == Some(true) {
        return;
    }
    let socket = match ClientSocket::new(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "can't use a client's socket");
            return;
        }
    };
    tracing::debug!("connected");
    match lane {
        Lane::Gpg => gpg_session::serve(context, stop, socket).await,
        Lane::Ssh => ssh_session::serve(context, stop, socket).await,
    }
}

pub(super) fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
