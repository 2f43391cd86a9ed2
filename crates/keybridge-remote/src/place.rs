//! One lane in the target, from taking its place to giving it up: the lock, the socket, and the lines
//! in files of the user's.

mod choice;
mod taking;

use std::rc::Rc;

use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use crate::error::StopError;
use crate::handover::{self, Offer};
use crate::home_folder::HomeFolder;
use crate::home_lock::HomeLock;
use crate::listening::Listening;
use crate::session::Common;
use crate::{BridgeToken, LaneHome, MarkedBlock, Stopping, accept, git, guard};

pub(crate) use taking::{TakenPlace, remove_dead, take};

/// A lane's place. To be left: dropping it leaves everything as it is.
pub(crate) struct Place {
    home: LaneHome,
    lock: Rc<HomeLock>,
    socket: Rc<Listening>,
    edits: Vec<MarkedBlock>,
    /// Where a newer helper can ask for this place.
    door: Option<Rc<Listening>>,
    stopping: Stopping,
    /// A newer helper has everything that is here.
    handed_over: Stopping,
    tasks: Vec<JoinHandle<()>>,
}

impl Place {
    fn new(home: LaneHome, lock: HomeLock, socket: Rc<Listening>, edits: Vec<MarkedBlock>) -> Self {
        Self {
            home,
            lock: Rc::new(lock),
            socket,
            edits,
            door: None,
            stopping: Stopping::default(),
            handed_over: Stopping::default(),
            tasks: Vec::new(),
        }
    }

    pub(crate) fn home(&self) -> &LaneHome {
        &self.home
    }

    pub(crate) fn socket(&self) -> &Listening {
        &self.socket
    }

    pub(crate) fn handed_over(&self) -> &Stopping {
        &self.handed_over
    }

    /// Serves clients with tasks of the current [`tokio::task::LocalSet`], and newer helpers of the
    /// same bridge.
    pub(crate) fn serve(&mut self, common: Common, bridge: Option<BridgeToken>) {
        let (lane, socket) = (self.home.lane(), &self.socket);
        let accepting = accept::accept(lane, Rc::clone(socket), common, self.stopping.clone());
        let guarding = guard::guard(Rc::clone(socket), self.home.clone(), self.stopping.clone());
        self.tasks.extend([spawn_local(accepting), spawn_local(guarding)]);
        let Some(bridge) = bridge else { return };
        self.door = open_door(self.home.folder());
        self.tasks.extend(self.door.clone().map(|door| {
            let offer = Offer {
                bridge,
                door,
                lock: Rc::clone(&self.lock),
                sockets: vec![Rc::clone(socket)],
                stopping: self.stopping.clone(),
                handed_over: self.handed_over.clone(),
            };
            spawn_local(offer.serve())
        }));
    }

    /// No more clients, and an end to the sessions.
    pub(crate) fn stop(&self) -> Result<(), StopError> {
        self.stopping.say();
        match &self.door {
            // A newer helper that asks now does better to wait for the lock.
            Some(door) if !self.handed_over.is_said() => close(door),
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
        if self.handed_over.is_said() {
            return result.into_result();
        }
        result.note(close(&self.socket));
        result.note(undo(&self.edits, self.home.folder()));
        result.note(git::remove_files(self.home.path()).map_err(StopError::Git));
        result.note(self.lock.release().map_err(StopError::Lock));
        self.home.folder().unmake();
        result.into_result()
    }
}

fn close(socket: &Listening) -> Result<(), StopError> {
    let path = socket.path().to_owned();
    socket.close().map_err(|source| StopError::Socket { path, source })
}

/// The socket over which a newer helper can ask for this place. Without it the newer one kills us.
fn open_door(folder: &HomeFolder) -> Option<Rc<Listening>> {
    let door = handover::bind(folder.path());
    door.inspect_err(|error| tracing::warn!(%error, "no hand-over")).ok().map(Rc::new)
}

/// Undoes edits; those in the lane's folder only if that is the one that is there.
fn undo(edits: &[MarkedBlock], folder: &HomeFolder) -> Result<(), StopError> {
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
