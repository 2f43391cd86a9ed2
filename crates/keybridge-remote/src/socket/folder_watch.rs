//! Events in a folder, by inotify.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use keybridge_link::register;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

use crate::StopSignal;

/// How often to look even without events.
const SLOW_CHECK: Duration = Duration::from_secs(5);

/// Events in a folder. Without inotify, or without the folder, there is only the slow check.
pub(crate) struct FolderWatch(Option<AsyncFd<OwnedFd>>);

impl FolderWatch {
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let start = || -> io::Result<AsyncFd<OwnedFd>> {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let folder = folder.ok_or(io::ErrorKind::NotFound)?;
            let events = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF
                | WatchFlags::ONLYDIR;
            inotify::add_watch(&fd, folder, events)?;
            register(fd, Interest::READABLE)
        };
        let watch = start();
        match &watch {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "can't use inotify, looking every 5 s instead");
            }
            Ok(_) | Err(_) => {}
        }
        Self(watch.ok())
    }

    /// Waits until something may have changed.
    pub(crate) async fn wait_for_change(&self, stop: &StopSignal) {
        tokio::select! {
            () = self.changed() => {}
            () = sleep(SLOW_CHECK) => {}
            () = stop.wait() => {}
        }
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

#[cfg(test)]
mod tests {
    use keybridge_lab::{on_this_thread, short_folder};

    use super::*;

    /// Without the slow check, which would notice all of them later.
    #[test]
    fn what_changes_in_the_folder_is_an_event() {
        on_this_thread(async {
            let folder = short_folder("kbw");
            let at = |name: &str| folder.path().join(name);
            let watch = FolderWatch::new(Some(folder.path()));
            std::fs::write(at("socket"), "").unwrap();
            watch.changed().await;
            std::fs::rename(at("socket"), at("elsewhere")).unwrap();
            watch.changed().await;
            std::fs::remove_file(at("elsewhere")).unwrap();
            watch.changed().await;
            std::fs::rename(folder.path(), folder.path().with_extension("moved")).unwrap();
            watch.changed().await;
            std::fs::remove_dir(folder.path().with_extension("moved")).unwrap();
        });
    }
}
