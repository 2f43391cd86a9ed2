//! Accepting clients, until the lane stops.

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::assuan::Reply;
use keybridge_proto::git::Answer;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::StopSignal;
use crate::clients::admission::PeerCheck;
use crate::clients::session::{self, SessionContext};
use crate::socket::listening_socket::ListeningSocket;

/// How long to wait when the system has no descriptor for a client and no session ends.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Every session ends within two seconds; none is waited for longer.
const END_TIME: Duration = Duration::from_secs(3);

/// Accepts clients until the lane stops, and then waits for the sessions to end.
pub(crate) async fn accept(
    lane: Lane,
    listening: Rc<ListeningSocket>,
    context: SessionContext,
    stop: StopSignal,
) {
    let peer_check = PeerCheck::of_user();
    let mut sessions = JoinSet::new();
    let mut number: u64 = 0;
    let mut shortage = false;
    while let Some(listener) = listening.listener() {
        let accepted = tokio::select! {
            () = stop.wait() => break,
            () = listening.changed() => continue,
            Some(ended) = sessions.join_next() => {
                log_failure(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                if !std::mem::replace(&mut shortage, true) {
                    tracing::warn!(%error, "can't accept a client");
                }
                tokio::select! {
                    () = stop.wait() => {}
                    Some(ended) = sessions.join_next() => log_failure(ended),
                    () = sleep(SHORTAGE_PAUSE) => {}
                }
                continue;
            }
        };
        shortage = false;
        if let Err(error) = peer_check.allows(&socket) {
            tracing::warn!("refused a client: {error}");
            continue;
        }
        while let Some(ended) = sessions.try_join_next() {
            log_failure(ended);
        }
        let socket = match socket.into_std() {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "can't use a client's socket");
                continue;
            }
        };
        let Some(permit) = context.session_limit.acquire() else {
            let max_sessions = context.session_limit.limit();
            tracing::warn!(%lane, max_sessions, "refused a client: too many sessions");
            // A new socket has room for a line; if not, the close alone has to do.
            let _ = (&socket).write(&refusal(lane));
            continue;
        };
        number += 1;
        let span = tracing::info_span!("session", %lane, number);
        let session = session::serve(lane, context.clone(), stop.clone(), socket);
        let counted = async move {
            session.await;
            drop(permit);
        };
        sessions.spawn_local(counted.instrument(span));
    }
    let all_ended = async {
        while let Some(ended) = sessions.join_next().await {
            log_failure(ended);
        }
    };
    if timeout(END_TIME, all_ended).await.is_err() {
        tracing::warn!("dropped sessions that didn't end");
    }
}

/// What a client is sent that can't be served.
fn refusal(lane: Lane) -> Vec<u8> {
    match lane {
        Lane::Gpg => Reply::LimitReached.line().into(),
        // ssh clients read an answer only after they have sent a request, and then see the close.
        Lane::Ssh => Vec::new(),
        // An entry tries again.
        Lane::Git => Answer::Busy.encode().unwrap_or_default(),
    }
}

fn log_failure(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session failed");
    }
}
