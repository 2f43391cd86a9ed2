//! One lane in the target, from taking its place to giving it up: the lock, the socket, and the lines
//! in files of the user's.

use std::rc::Rc;

use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use crate::clients::accept;
use crate::clients::session::SessionContext;
use crate::error::StopError;
use crate::handover::{self, HandoverServer};
use crate::home::lane_folder::LaneFolder;
use crate::home::lock::LaneLock;
use crate::socket::listening_socket::ListeningSocket;
use crate::socket::path_guard;
use crate::user_files::git;
use crate::{BridgeToken, DiscoveredLane, MarkedBlock, StopSignal};

/// A lane's place. To be left: dropping it leaves everything as it is.
pub(crate) struct RunningLane {
    discovered: DiscoveredLane,
    lock: Rc<LaneLock>,
    socket: Rc<ListeningSocket>,
    edits: Vec<MarkedBlock>,
    /// Where a newer helper can ask for this place.
    door: Option<Rc<ListeningSocket>>,
    stop: StopSignal,
    /// A newer helper has everything that is here.
    handed_over: StopSignal,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningLane {
    pub(super) fn new(
        discovered: DiscoveredLane,
        lock: LaneLock,
        socket: Rc<ListeningSocket>,
        edits: Vec<MarkedBlock>,
    ) -> Self {
        Self {
            discovered,
            lock: Rc::new(lock),
            socket,
            edits,
            door: None,
            stop: StopSignal::default(),
            handed_over: StopSignal::default(),
            tasks: Vec::new(),
        }
    }

    pub(crate) fn discovered(&self) -> &DiscoveredLane {
        &self.discovered
    }

    pub(crate) fn socket(&self) -> &ListeningSocket {
        &self.socket
    }

    pub(crate) fn handed_over(&self) -> &StopSignal {
        &self.handed_over
    }

    /// Serves clients with tasks of the current [`tokio::task::LocalSet`], and newer helpers of the
    /// same bridge.
    pub(crate) fn serve(&mut self, context: SessionContext, bridge: Option<BridgeToken>) {
        let (lane, socket) = (self.discovered.lane(), &self.socket);
        let accepting = accept::accept(lane, Rc::clone(socket), context, self.stop.clone());
        let guarding =
            path_guard::guard(Rc::clone(socket), self.discovered.clone(), self.stop.clone());
        self.tasks.extend([spawn_local(accepting), spawn_local(guarding)]);
        let Some(bridge) = bridge else { return };
        self.door = open_door(self.discovered.folder());
        self.tasks.extend(self.door.clone().map(|door| {
            let offer = HandoverServer {
                bridge,
                door,
                lock: Rc::clone(&self.lock),
                sockets: vec![Rc::clone(socket)],
                stop: self.stop.clone(),
                handed_over: self.handed_over.clone(),
            };
            spawn_local(offer.serve())
        }));
    }

    /// No more clients, and an end to the sessions.
    pub(crate) fn stop(&self) -> Result<(), StopError> {
        self.stop.set();
        match &self.door {
            // A newer helper that asks now does better to wait for the lock.
            Some(door) if !self.handed_over.is_set() => close(door),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits for the end of what is served, and undoes what was done, unless it was handed over. To be
    /// called after [`Self::stop`]. Every step is done; the first error is returned.
    pub(crate) async fn leave(self) -> Result<(), StopError> {
        let mut result = FirstError::default();
        for task in self.tasks {
            result.note(task.await.map_err(|error| StopError::Task(error.to_string())));
        }
        if self.handed_over.is_set() {
            return result.into_result();
        }
        result.note(close(&self.socket));
        result.note(undo(&self.edits, self.discovered.folder()));
        result.note(git::remove_files(self.discovered.path()).map_err(StopError::Git));
        result.note(self.lock.release().map_err(StopError::Lock));
        self.discovered.folder().unmake();
        result.into_result()
    }
}

fn close(socket: &ListeningSocket) -> Result<(), StopError> {
    let path = socket.path().to_owned();
    socket.close().map_err(|source| StopError::Socket { path, source })
}

/// The socket over which a newer helper can ask for this place. Without it the newer one kills us.
fn open_door(folder: &LaneFolder) -> Option<Rc<ListeningSocket>> {
    let door = handover::bind(folder.path());
    door.inspect_err(|error| tracing::warn!(%error, "no hand-over")).ok().map(Rc::new)
}

/// Undoes edits; those in the lane's folder only if that is the one that is there.
pub(super) fn undo(edits: &[MarkedBlock], folder: &LaneFolder) -> Result<(), StopError> {
    let mut result = FirstError::default();
    for edit in edits {
        let is_lost = edit.path().starts_with(folder.path()) && folder.is_replaced();
        result.note(if is_lost {
            Err(StopError::OtherHome { path: folder.path().to_owned() })
        } else {
            edit.remove().map_err(StopError::from)
        });
    }
    result.into_result()
}
