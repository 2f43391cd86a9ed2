//! Guards the socket's path: if the socket is unlinked or a stray agent replaces it, it is bound again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::socket::current_listener::CurrentListener;
use crate::socket::listening_socket::ListeningSocket;
use crate::{DiscoveredLane, Error, StopSignal};
use keybridge_link::register;

/// How often the path is checked even without news from inotify.
const SLOW_CHECK: Duration = Duration::from_secs(5);

/// The least time between two repairs, in case an agent keeps taking the path.
const PAUSE: Duration = Duration::from_millis(250);

/// Watches until the lane stops.
pub(crate) async fn guard(
    listening: Rc<ListeningSocket>,
    discovered: DiscoveredLane,
    stop: StopSignal,
) {
    let mut watch = FolderWatch::new(&listening);
    let mut complained = false;
    while !stop.is_set() {
        if listening.is_in_place() {
            complained = false;
            wait_for_change(&watch, &stop).await;
            continue;
        }
        // Not stopped half-way: a stop waits for this task before it removes the socket.
        match repair(&listening, &discovered).await {
            Ok(()) => {
                let lane = discovered.lane();
                tracing::warn!(%lane, "the socket was removed or replaced, and is bound again");
                watch = FolderWatch::new(&listening);
                pause(&stop).await;
            }
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!("can't bind the socket again: {error}");
                }
                pause(&stop).await;
                wait_for_change(&watch, &stop).await;
            }
        }
    }
}

/// Waits until the path may have changed.
async fn wait_for_change(watch: &FolderWatch, stop: &StopSignal) {
    tokio::select! {
        () = watch.changed() => {}
        () = sleep(SLOW_CHECK) => {}
        () = stop.wait() => {}
    }
}

async fn pause(stop: &StopSignal) {
    tokio::select! {
        () = sleep(PAUSE) => {}
        () = stop.wait() => {}
    }
}

async fn repair(listening: &ListeningSocket, discovered: &DiscoveredLane) -> Result<(), Error> {
    let path = listening.path();
    discovered.folder().check()?;
    if path.parent().is_some_and(|folder| !folder.exists()) {
        discovered.make_socket_folder().await?;
    }
    listening.check_folder()?;
    CurrentListener::find(path, discovered).await?.free_path(path, false).await?;
    listening.bind()
}

/// Events in the socket's folder. Without inotify there is only the slow check.
struct FolderWatch(Option<AsyncFd<OwnedFd>>);

impl FolderWatch {
    fn new(listening: &ListeningSocket) -> Self {
        let start = || -> io::Result<AsyncFd<OwnedFd>> {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let folder = listening.path().parent().ok_or(io::ErrorKind::NotFound)?;
            let events = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            inotify::add_watch(&fd, folder, events)?;
            register(fd, Interest::READABLE)
        };
        Self(
            start()
                .inspect_err(
                    |error| tracing::warn!(%error, "can't use inotify, looking every 5 s instead"),
                )
                .ok(),
        )
    }

    /// Waits for events, and takes all of them.
    async fn changed(&self) {
        let Some(fd) = &self.0 else { return std::future::pending().await };
        let Ok(mut guard) = fd.readable().await else { return std::future::pending().await };
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(fd.get_ref(), &mut buffer);
        while reader.next().is_ok() {}
        guard.clear_ready();
    }
}
