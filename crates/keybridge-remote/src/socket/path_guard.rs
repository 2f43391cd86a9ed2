//! Guards the socket's path: if the socket is unlinked or a stray agent replaces it, it is bound again.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::footprint::Footprint;
use crate::socket::current_listener::CurrentListener;
use crate::socket::folder_watch::FolderWatch;
use crate::socket::listening_socket::ListeningSocket;
use crate::{DiscoveredLane, Error, StopSignal};

/// The least time between two repairs, in case an agent keeps taking the path.
const PAUSE: Duration = Duration::from_millis(250);

/// Keeps the paths of a lane's sockets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PathGuard {
    pub(crate) discovered: DiscoveredLane,
    pub(crate) footprint: Rc<Footprint>,
    /// Whether systemd's units are masked. Other programs that listen there are left alone.
    pub(crate) replaces_units: bool,
    pub(crate) stop: StopSignal,
}

impl PathGuard {
    /// Watches until the lane stops.
    pub(crate) async fn guard(self, listening: Rc<ListeningSocket>) {
        let folder = || listening.path().parent();
        let mut watch = FolderWatch::new(folder());
        let mut complained = false;
        while !self.stop.is_set() {
            if listening.is_in_place() {
                complained = false;
                watch.wait_for_change(&self.stop).await;
                continue;
            }
            // Not stopped half-way: a stop waits for this task before it removes the socket.
            match self.bind(&listening).await {
                Ok(()) => {
                    let lane = self.discovered.lane();
                    tracing::warn!(%lane, "the socket was removed or replaced, and is bound again");
                    watch = FolderWatch::new(folder());
                    self.pause().await;
                }
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!("can't bind the socket again: {error}");
                    }
                    self.pause().await;
                    watch.wait_for_change(&self.stop).await;
                }
            }
        }
    }

    /// Waits a moment, unless the lane stops.
    pub(crate) async fn pause(&self) {
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = self.stop.wait() => {}
        }
    }

    /// Binds a socket whose path is free, or can be made so.
    pub(crate) async fn bind(&self, listening: &ListeningSocket) -> Result<(), Error> {
        let (path, discovered) = (listening.path(), &self.discovered);
        discovered.folder().check()?;
        let folder = path.parent().unwrap_or(path);
        // Where a logout has taken all of it away, there is nobody to make it.
        if !folder.exists() && folder.parent().is_some_and(Path::exists) {
            discovered.make_socket_folder().await?;
        }
        listening.check_folder()?;
        let listener = CurrentListener::find(path, discovered).await?;
        let replace = self.replaces_units && listener.is_systemd();
        if let Some(units) = discovered.user_units().filter(|_| replace) {
            for warning in units.mask_owners(path, &self.footprint).await {
                tracing::warn!("{warning}");
            }
        }
        listener.free_path(path, replace).await?;
        listening.bind()
    }
}
