//! Letting clients in: who may, and how many.

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::assuan::Reply;
use tokio::net::UnixStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use crate::Stopping;
use crate::folder::euid;
use crate::listening::Listening;
use crate::session::{self, Common};

/// How long to wait when the system has no descriptor for a client and no session ends.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Every session says farewell within two seconds; none is waited for longer.
const END_TIME: Duration = Duration::from_secs(3);

/// Lets clients in until the lane stops, and then waits for the sessions to end.
pub(crate) async fn accept(
    lane: Lane,
    listening: Rc<Listening>,
    common: Common,
    stopping: Stopping,
) {
    let door = Door::of_user();
    let mut sessions = JoinSet::new();
    let mut number: u64 = 0;
    let mut shortage = false;
    while let Some(listener) = listening.listener() {
        let accepted = tokio::select! {
            () = stopping.wait() => break,
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
                    () = stopping.wait() => {}
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
        let Some(admitted) = common.admission.admit() else {
            let max_sessions = common.admission.limit();
            tracing::warn!(%lane, max_sessions, "refused a client: too many sessions");
            // A new socket has room for a line; if not, the close alone has to do.
            let _ = (&socket).write(last_words(lane));
            continue;
        };
        number += 1;
        let span = tracing::info_span!("session", %lane, number);
        let session = session::serve(lane, common.clone(), stopping.clone(), socket);
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

/// Who may come in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    own: u32,
    /// Stands for every uid that has none here: it could be anyone.
    overflow: u32,
}

impl Door {
    /// The door of the target's user.
    pub(crate) fn of_user() -> Self {
        Self { own: euid(), overflow: overflow_uid() }
    }

    pub(crate) fn admits(self, socket: &UnixStream) -> Result<(), String> {
        let peer = socket.peer_cred().map_err(|error| format!("its uid can't be had: {error}"))?;
        if self.admits_uid(peer.uid()) { Ok(()) } else { Err(format!("uid {}", peer.uid())) }
    }

    fn admits_uid(self, uid: u32) -> bool {
        uid != self.overflow && (uid == self.own || uid == 0)
    }
}

/// The uid that stands for all that aren't mapped.
fn overflow_uid() -> u32 {
    const DEFAULT: u32 = 65534;
    std::fs::read_to_string("/proc/sys/kernel/overflowuid")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_and_root_come_in() {
        let door = Door { own: 1000, overflow: 65534 };
        assert!(door.admits_uid(1000) && door.admits_uid(0));
        assert!(!door.admits_uid(1001) && !door.admits_uid(65534));
        assert!(!Door { own: 65534, overflow: 65534 }.admits_uid(65534));
    }
}
