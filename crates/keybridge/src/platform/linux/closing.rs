//! Closes descriptors that come from a target on a thread of their own, since that can wait: for a file
//! system, for the peer of a socket that lingers, and for whatever is in the unread messages of a Unix
//! socket.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use rustix::io::ioctl_fionread;
use rustix::net::{Shutdown, shutdown};

/// How many descriptors may wait. While there are more, nothing that could add to them is received.
const MOST_WAITING: usize = 128;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// To the thread; none if it can't be started.
static CLOSER: LazyLock<Option<Sender<Vec<OwnedFd>>>> = LazyLock::new(|| {
    let (sender, receiver) = channel::<Vec<OwnedFd>>();
    let closing = std::thread::Builder::new().name("closing".to_owned()).spawn(move || {
        for descriptors in receiver {
            let count = descriptors.len();
            drop(descriptors);
            WAITING.fetch_sub(count, Ordering::Relaxed);
        }
    });
    closing.ok().map(|_| sender)
});

/// Closes descriptors without waiting for it.
pub(crate) fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    // Without the thread they are closed here.
    if let Some(closer) = &*CLOSER {
        WAITING.fetch_add(descriptors.len(), Ordering::Relaxed);
        let _ = closer.send(descriptors);
    }
}

/// Ends the connection of a client, and closes it without waiting for what is unread in it.
pub(crate) fn end_connection(client: OwnedFd) {
    // Nothing can be sent to it from now on.
    let _ = shutdown(&client, Shutdown::Both);
    if has_unread(&client) {
        close_elsewhere(vec![client]);
    }
}

/// Whether something is unread in a socket, which can have descriptors with it.
pub(crate) fn has_unread(socket: impl AsFd) -> bool {
    ioctl_fionread(socket) != Ok(0)
}

/// Whether the thread can't keep up: something is closed that takes its time.
pub(crate) fn is_closing_slow() -> bool {
    WAITING.load(Ordering::Relaxed) > MOST_WAITING
}

/// A duplicate that is closed elsewhere, after the descriptors that are dropped before it: so these are
/// never the last ones of their file.
#[derive(Debug, Default)]
pub(crate) struct LastClose(pub(crate) Option<OwnedFd>);

impl Drop for LastClose {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            close_elsewhere(vec![last]);
        }
    }
}
