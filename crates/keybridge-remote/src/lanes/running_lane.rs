//! A lane that is served: its clients, the guard of its socket, and newer helpers that ask for it.

use std::rc::Rc;

use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use super::follow_login::LoginFollower;
use super::lane_sockets::LaneSockets;
use crate::clients::accept;
use crate::clients::session::SessionContext;
use crate::error::Error;
use crate::footprint::{Change, Footprint, UndoContext};
use crate::handover::{self, HandoverServer};
use crate::socket::listening_socket::ListeningSocket;
use crate::socket::path_guard::PathGuard;
use crate::{DiscoveredLane, Settings, StopSignal};

/// A lane that is served. It has to be stopped and undone: dropping it undoes nothing.
pub(crate) struct RunningLane {
    discovered: DiscoveredLane,
    footprint: Rc<Footprint>,
    /// The first one, which the host is told of.
    socket: Rc<ListeningSocket>,
    sockets: LaneSockets,
    stop: StopSignal,
    /// A newer helper serves the lane now.
    handed_over: StopSignal,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningLane {
    pub(super) fn new(
        discovered: DiscoveredLane,
        footprint: Footprint,
        socket: Rc<ListeningSocket>,
    ) -> Self {
        Self {
            discovered,
            footprint: Rc::new(footprint),
            sockets: LaneSockets::new(Rc::clone(&socket)),
            socket,
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
    pub(crate) fn serve(&mut self, context: SessionContext, settings: &Settings) {
        let (lane, socket) = (self.discovered.lane(), &self.socket);
        let guard = PathGuard {
            discovered: self.discovered.clone(),
            footprint: Rc::clone(&self.footprint),
            replaces_units: settings.replace,
            stop: self.stop.clone(),
        };
        let accepting = accept::accept(lane, Rc::clone(socket), context.clone(), self.stop.clone());
        let guarding = guard.clone().guard(Rc::clone(socket));
        self.tasks.extend([spawn_local(accepting), spawn_local(guarding)]);
        if let Some(gnupg) = self.discovered.gnupg().filter(|gnupg| gnupg.socket_follows_logins()) {
            let (gnupg, sockets) = (Rc::clone(gnupg), self.sockets.clone());
            let follower = LoginFollower { gnupg, sockets, guard, context };
            self.tasks.push(spawn_local(follower.follow()));
        }
        let Some(bridge) = settings.bridge.clone() else { return };
        match self.bind_handover_socket() {
            Ok(listener) => {
                let server = HandoverServer {
                    bridge,
                    listener,
                    lock: Rc::clone(self.footprint.lock()),
                    sockets: self.sockets.clone(),
                    stop: self.stop.clone(),
                    handed_over: self.handed_over.clone(),
                };
                self.tasks.push(spawn_local(server.serve()));
            }
            // A newer helper then kills this one.
            Err(error) => tracing::warn!(%error, "newer helpers can't ask for this lane"),
        }
    }

    fn bind_handover_socket(&self) -> Result<ListeningSocket, Error> {
        self.footprint.record(Change::BoundHandoverSocket)?;
        handover::bind(self.discovered.path())
    }

    /// Accepts no more clients, and ends the sessions.
    pub(crate) async fn stop(&self) -> Result<(), Error> {
        self.stop.set();
        if self.handed_over.is_set() {
            return Ok(());
        }
        // A newer helper that comes now should wait for the lock instead of asking.
        let is_handover = |change: &Change| *change == Change::BoundHandoverSocket;
        self.footprint.undo(is_handover, &self.undo_context(&[])).await
    }

    /// Waits for the end of what is served, and undoes what was done, unless it was handed over. To be
    /// called after [`Self::stop`]. Every step is tried; the first error is returned.
    pub(crate) async fn leave(mut self) -> Result<(), Error> {
        let mut result = FirstError::default();
        for task in std::mem::take(&mut self.tasks) {
            result.note(task.await.map_err(|error| Error::task("a task of the lane", error)));
        }
        if !self.handed_over.is_set() {
            let bound = self.sockets.all();
            result.note(self.footprint.undo_all(&self.undo_context(&bound)).await);
        }
        result.into_result()
    }

    fn undo_context<'a>(&'a self, bound: &'a [Rc<ListeningSocket>]) -> UndoContext<'a> {
        UndoContext { discovered: &self.discovered, bound }
    }
}
