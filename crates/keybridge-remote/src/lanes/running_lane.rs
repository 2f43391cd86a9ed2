//! A lane that is served: its clients, and the guard of its socket.

use std::cell::RefCell;
use std::rc::Rc;

use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use super::follow_login::LoginFollower;
use crate::clients::accept;
use crate::clients::pipes::Pipes;
use crate::clients::session::SessionContext;
use crate::error::Error;
use crate::footprint::{Footprint, UndoContext};
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
    /// The pipes of the git lane, until they are served.
    pipes: Option<Pipes>,
    stop: StopSignal,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningLane {
    pub(super) fn new(
        discovered: DiscoveredLane,
        footprint: Footprint,
        socket: Rc<ListeningSocket>,
        pipes: Option<Pipes>,
    ) -> Self {
        Self {
            discovered,
            footprint: Rc::new(footprint),
            sockets: LaneSockets::new(Rc::clone(&socket)),
            socket,
            pipes,
            stop: StopSignal::default(),
            tasks: Vec::new(),
        }
    }

    pub(crate) fn discovered(&self) -> &DiscoveredLane {
        &self.discovered
    }

    pub(crate) fn socket(&self) -> &ListeningSocket {
        &self.socket
    }

    /// Serves clients with tasks of the current [`tokio::task::LocalSet`].
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
        if let Some(pipes) = self.pipes.take() {
            self.tasks.push(spawn_local(pipes.serve(context.clone(), self.stop.clone())));
        }
        if let Some(gnupg) = self.discovered.gnupg().filter(|gnupg| gnupg.socket_follows_logins()) {
            let (gnupg, sockets) = (Rc::clone(gnupg), self.sockets.clone());
            let follower = LoginFollower { gnupg, sockets, guard, context };
            self.tasks.push(spawn_local(follower.follow()));
        }
    }

    /// Accepts no more clients, and ends the sessions.
    pub(crate) fn stop(&self) {
        self.stop.set();
    }

    /// Waits for the end of what is served, and undoes what was done. To be called after [`Self::stop`].
    /// Every step is tried; the first error is returned.
    pub(crate) async fn undo(mut self) -> Result<(), Error> {
        let mut result = FirstError::default();
        result.note(self.ended().await);
        let bound = self.sockets.all();
        result.note(self.footprint.undo_all(&self.undo_context(&bound)).await);
        result.into_result()
    }

    /// Waits for the end of what is served, and lets go of the lock. To be called after [`Self::stop`].
    pub(crate) async fn leave(mut self) -> Result<(), Error> {
        self.ended().await
    }

    async fn ended(&mut self) -> Result<(), Error> {
        let mut result = FirstError::default();
        for task in std::mem::take(&mut self.tasks) {
            result.note(task.await.map_err(|error| Error::task("a task of the lane", error)));
        }
        result.into_result()
    }

    fn undo_context<'a>(&'a self, bound: &'a [Rc<ListeningSocket>]) -> UndoContext<'a> {
        UndoContext { discovered: &self.discovered, bound }
    }
}

/// The sockets of a lane: one, and another one where gpg looks for its agent after a login. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LaneSockets(Rc<RefCell<Vec<Rc<ListeningSocket>>>>);

impl LaneSockets {
    pub(crate) fn new(first: Rc<ListeningSocket>) -> Self {
        Self(Rc::new(RefCell::new(vec![first])))
    }

    pub(crate) fn add(&self, socket: Rc<ListeningSocket>) {
        self.0.borrow_mut().push(socket);
    }

    /// All of them by now.
    pub(crate) fn all(&self) -> Vec<Rc<ListeningSocket>> {
        self.0.borrow().clone()
    }
}
