//! Letting clients in: who may, and how many.

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::assuan::Reply;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::StopSignal;
use crate::clients::peer_check::PeerCheck;
use crate::clients::session::{self, SessionContext};
use crate::socket::listening_socket::ListeningSocket;

/// How long to wait when the system has no descriptor for a client and no session ends.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Every session says farewell within two seconds; none is waited for longer.
const END_TIME: Duration = Duration::from_secs(3);

/// Lets clients in until the lane stops, and then waits for the sessions to end.
pub(crate) async fn accept(
    lane: Lane,
    listening: Rc<ListeningSocket>,
    context: SessionContext,
    stop: StopSignal,
) {
    let door = PeerCheck::of_user();
    let mut sessions = JoinSet::new();
    let mut number: u64 = 0;
    let mut shortage = false;
    while let Some(listener) = listening.listener() {
        let accepted = tokio::select! {
            () = stop.wait() => break,
            () = listening.changed() => continue,
            Some(ended) = sessions.join_next() => {
                note_end(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                if !std::mem::replace(&mut shortage, true) {
                    tracing::warn!(%error, "a client can't be let in");
                }
                tokio::select! {
                    () = stop.wait() => {}
                    Some(ended) = sessions.join_next() => note_end(ended),
                    () = sleep(SHORTAGE_PAUSE) => {}
                }
                continue;
            }
        };
        shortage = false;
        if let Err(stranger) = door.admits(&socket) {
            tracing::warn!("refused a client: {stranger}");
            continue;
        }
        while let Some(ended) = sessions.try_join_next() {
            note_end(ended);
        }
        let socket = match socket.into_std() {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "a client's socket can't be used");
                continue;
            }
        };
        let Some(admitted) = context.admission.admit() else {
            let max_sessions = context.admission.limit();
            tracing::warn!(%lane, max_sessions, "refused a client: too many sessions");
            // A new socket has room for a line; if not, the close alone has to do.
            let _ = (&socket).write(last_words(lane));
            continue;
        };
        number += 1;
        let span = tracing::info_span!("session", %lane, number);
        let session = session::serve(lane, context.clone(), stop.clone(), socket);
        let counted = async move {
            session.await;
            drop(admitted);
        };
        sessions.spawn_local(counted.instrument(span));
    }
    let all_ended = async {
        while let Some(ended) = sessions.join_next().await {
            note_end(ended);
        }
    };
    if timeout(END_TIME, all_ended).await.is_err() {
        tracing::warn!("some sessions didn't end and are dropped");
    }
}

/// What a client gets that can't be served.
fn last_words(lane: Lane) -> &'static [u8] {
    match lane {
        Lane::Gpg => Reply::LimitReached.line(),
        // Nobody reads an answer before the request is sent, and then the close has come.
        Lane::Ssh => &[],
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session broke");
    }
}
