//! Logins and logouts in the target. gpg looks for its agent below `/run/user/UID` while that folder is
//! there, and in its home otherwise. Logins make it and the last logout removes it, so the bridge has to
//! be at both places in its time.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use tokio::task::JoinSet;

use super::running_lane::LaneSockets;
use crate::clients::accept;
use crate::clients::session::SessionContext;
use crate::error::Error;
use crate::footprint::Change;
use crate::home::safe_path::euid;
use crate::socket::folder_watch::FolderWatch;
use crate::socket::listening_socket::ListeningSocket;
use crate::socket::path_guard::PathGuard;
use crate::{Gnupg, systemd};

/// What is needed to serve gpg at another path too.
pub(crate) struct LoginFollower {
    pub(crate) gnupg: Rc<Gnupg>,
    pub(crate) sockets: LaneSockets,
    pub(crate) guard: PathGuard,
    pub(crate) context: SessionContext,
}

impl LoginFollower {
    /// Serves gpg where it looks for its agent by now, until the lane stops.
    pub(crate) async fn follow(self) {
        let folder = systemd::runtime_folder();
        let stop = self.guard.stop.clone();
        let watch = FolderWatch::new(folder.parent());
        let mut served = JoinSet::new();
        let mut seen = is_ours(&folder);
        let mut complained = false;
        while !stop.is_set() {
            watch.wait_for_change(&stop).await;
            if is_ours(&folder) == seen {
                // It is made by root, and becomes the user's a moment later.
                self.guard.pause().await;
            }
            let is_there = is_ours(&folder);
            if is_there == seen || stop.is_set() {
                continue;
            }
            match self.add_socket().await {
                Ok(added) => {
                    (seen, complained) = (is_there, false);
                    if let Some(socket) = added {
                        self.serve(socket, &mut served);
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!("gpg finds no bridge since a login or logout: {error}");
                    }
                }
            }
        }
        while let Some(ended) = served.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the lane broke");
            }
        }
    }

    fn serve(&self, socket: Rc<ListeningSocket>, served: &mut JoinSet<()>) {
        let (lane, stop) = (self.guard.discovered.lane(), self.guard.stop.clone());
        let context = self.context.clone();
        served.spawn_local(accept::accept(lane, Rc::clone(&socket), context, stop));
        served.spawn_local(self.guard.clone().guard(socket));
    }

    /// Binds the socket where gpg looks for it by now, unless that is one of ours.
    async fn add_socket(&self) -> Result<Option<Rc<ListeningSocket>>, Error> {
        let path = self.gnupg.current_socket().await?;
        if self.sockets.all().iter().any(|socket| socket.path() == path) {
            return Ok(None);
        }
        let shown = path.display().to_string();
        self.guard.footprint.record(Change::BoundSocket(path.clone()))?;
        let socket = Rc::new(ListeningSocket::new(path));
        self.guard.bind(&socket).await?;
        self.sockets.add(Rc::clone(&socket));
        tracing::info!("gpg looks for its agent at {shown} now, and finds the bridge there");
        Ok(Some(socket))
    }
}

/// Whether a folder is there, and the user's.
fn is_ours(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == euid())
}
