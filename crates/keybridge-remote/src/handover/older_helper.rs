//! The older helper: it hands over its sockets and its lock when a newer one asks.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::{ANSWER_TIME, GONE, TAKEN, check_peer, message};
use crate::home::lock::LaneLock;
use crate::lanes::lane_sockets::LaneSockets;
use crate::socket::listening_socket::ListeningSocket;
use crate::{BridgeToken, StopSignal};

/// `TAKE`, a token and the line's end have fewer bytes.
const MAX_REQUEST: usize = 128;

/// How long to wait when the system has no descriptor for a newer helper.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// What a helper hands over when it is asked to.
pub(crate) struct HandoverServer {
    /// The bridge whose helpers may ask.
    pub(crate) bridge: BridgeToken,
    /// Where newer helpers connect.
    pub(crate) listener: ListeningSocket,
    pub(crate) lock: Rc<LaneLock>,
    pub(crate) sockets: LaneSockets,
    /// Ends what is served here; set when a newer helper has taken over.
    pub(crate) stop: StopSignal,
    /// Set when the newer helper owns all of this.
    pub(crate) handed_over: StopSignal,
}

/// How a handover ended.
enum HandoverOutcome {
    HandedOver,
    Refused,
}

impl HandoverServer {
    /// Answers newer helpers until one has taken over or the bridge stops.
    pub(crate) async fn serve(self) {
        let stop = &self.stop;
        while let Some(listener) = self.listener.listener() {
            let Some(accepted) = stop.unless_set(listener.accept()).await else { return };
            let talk = match accepted {
                Ok((stream, _)) => timeout(ANSWER_TIME, self.talk(stream)),
                Err(error) => {
                    tracing::debug!(%error, "can't accept a newer helper");
                    sleep(SHORTAGE_PAUSE).await;
                    continue;
                }
            };
            match stop.unless_set(talk).await {
                None => return,
                Some(Ok(Ok(HandoverOutcome::HandedOver))) => {
                    tracing::info!("handed over to a newer helper");
                    return;
                }
                Some(Ok(Ok(HandoverOutcome::Refused))) => {
                    tracing::warn!("refused to hand over to a helper of another bridge");
                }
                Some(Ok(Err(error))) => tracing::warn!(%error, "can't hand over"),
                Some(Err(_)) => {
                    tracing::warn!("a newer helper asked to take over and then stopped answering");
                }
            }
        }
    }

    async fn talk(&self, mut stream: UnixStream) -> io::Result<HandoverOutcome> {
        check_peer(&stream)?;
        if read_line(&mut stream).await? != format!("TAKE {}\n", self.bridge).as_bytes() {
            message::send_refusal(&stream).await?;
            return Ok(HandoverOutcome::Refused);
        }
        self.send(&stream).await?;
        let mut answer = [0; TAKEN.len()];
        stream.read_exact(&mut answer).await?;
        if answer != *TAKEN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // No await from here on, so that the handover is done either completely or not at all.
        self.lock.clear_holder();
        match stream.try_write(GONE) {
            Ok(count) if count == GONE.len() => {
                self.handed_over.set();
                self.stop.set();
                Ok(HandoverOutcome::HandedOver)
            }
            Ok(_) | Err(_) => {
                self.lock.set_holder(Some(&self.bridge));
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    async fn send(&self, stream: &UnixStream) -> io::Result<()> {
        let all = self.sockets.all();
        let bound: Vec<_> =
            all.iter().filter_map(|socket| Some((socket.path(), socket.bound()?))).collect();
        let sockets: Vec<_> = bound
            .iter()
            .map(|(path, (listener, identity))| (*path, *identity, listener.as_fd()))
            .collect();
        message::send_accepted(stream, self.lock.file().as_fd(), &sockets).await
    }
}

async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(MAX_REQUEST);
    while !line.ends_with(b"\n") && line.len() < MAX_REQUEST {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(line)
}
