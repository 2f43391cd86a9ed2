//! Keeps the socket's path: unlinked or taken by a stray agent, it is bound again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::listening::Listening;
use crate::occupant::Occupant;
use crate::{LaneHome, StartError, Stopping};
use keybridge_link::register;

/// How often the path is looked at even if nothing tells of a change.
const SLOW_CHECK: Duration = Duration::from_secs(5);

/// The least time between two repairs: an agent that fights for the path must not cost more.
const PAUSE: Duration = Duration::from_millis(250);

/// Watches until the lane stops.
pub(crate) async fn guard(listening: Rc<Listening>, home: LaneHome, stopping: Stopping) {
    let mut watch = Watch::new(&listening);
    let mut complained = false;
    while !stopping.is_said() {
        if listening.is_in_place() {
            complained = false;
            news(&watch, &stopping).await;
            continue;
        }
        // Not stopped half-way: a stop waits for this task before it removes the socket.
        match repair(&listening, &home).await {
            Ok(()) => {
                let lane = home.lane();
                tracing::warn!(%lane, "the socket was gone or replaced and is bound again");
                watch = Watch::new(&listening);
                pause(&stopping).await;
            }
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!("the socket's path is lost: {error}");
                }
                pause(&stopping).await;
                news(&watch, &stopping).await;
            }
        }
    }
}

/// Waits until the path may have changed.
async fn news(watch: &Watch, stopping: &Stopping) {
    tokio::select! {
        () = watch.changed() => {}
        () = sleep(SLOW_CHECK) => {}
        () = stopping.wait() => {}
    }
}

async fn pause(stopping: &Stopping) {
    tokio::select! {
        () = sleep(PAUSE) => {}
        () = stopping.wait() => {}
    }
}

async fn repair(listening: &Listening, home: &LaneHome) -> Result<(), StartError> {
    let path = listening.path();
    home.folder().check()?;
    if path.parent().is_some_and(|folder| !folder.exists()) {
        home.make_socket_folder().await?;
    }
    listening.check_folder()?;
    Occupant::look(path, home).await?.make_way(path, false).await?;
    listening.bind()
}

/// News of the socket's folder. Without inotify there is the slow check alone.
struct Watch(Option<AsyncFd<OwnedFd>>);

impl Watch {
    fn new(listening: &Listening) -> Self {
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
        Self(start().inspect_err(|error| tracing::warn!(%error, "no inotify")).ok())
    }

    /// Waits for news, all of which are taken.
    async fn changed(&self) {
        let Some(fd) = &self.0 else { return std::future::pending().await };
        let Ok(mut guard) = fd.readable().await else { return std::future::pending().await };
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut reader = Reader::new(fd.get_ref(), &mut buffer);
        while reader.next().is_ok() {}
        guard.clear_ready();
    }
}
