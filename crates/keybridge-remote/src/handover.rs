//! Handing over from one helper to the next of the same bridge. The listening sockets and the lock pass
//! over a small socket in the lane's folder, so that a client can connect at any time.
//!
//! ```text
//! newer ── TAKE token ───────────────────▶ older
//!       ◀── the sockets and the lock ─────
//!       ── TAKEN ────────────────────────▶
//!       ◀── GONE ─────────────────────────  from here on the newer one serves
//! ```
//!
//! If either of them ends before GONE, the older one keeps serving.

mod message;
mod newer_helper;
mod older_helper;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;

use crate::FileId;
use crate::error::Error;
use crate::home::safe_path::{euid, remove_if_exists};
use crate::socket::listening_socket::{self, ListeningSocket, is_our_socket};
use crate::socket::long_path::ShortSocketPath;

pub(crate) use newer_helper::{HandoverReply, ask};
pub(crate) use older_helper::HandoverServer;

/// How long the whole exchange may take.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(1);

const TAKEN: &[u8] = b"TAKEN\n";

const GONE: &[u8] = b"GONE\n";

/// What a helper hands over.
pub(crate) struct HandedOver {
    /// The open file that holds the lock.
    pub(crate) lock: File,
    pub(crate) sockets: Vec<HandedSocket>,
}

/// A listening socket, where it was bound, and to which file.
pub(crate) struct HandedSocket {
    pub(crate) path: PathBuf,
    pub(crate) identity: FileId,
    pub(crate) listener: UnixListener,
}

impl HandedSocket {
    /// Removes a socket that isn't needed any more, if its path still leads to it.
    pub(crate) fn remove(self) -> io::Result<()> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(file) if is_our_socket(&file) && FileId::of(&file) == self.identity => {
                remove_if_exists(&self.path)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The socket of the handover.
pub(crate) fn path_in(home: &Path) -> PathBuf {
    home.join(".keybridge-handover")
}

/// Removes the socket over which a helper can be asked. To be called with the lock: an older helper that
/// has handed over may still listen there.
pub(crate) fn remove_socket(home: &Path) -> Result<(), Error> {
    let path = path_in(home);
    if std::fs::symlink_metadata(&path).is_ok_and(|file| is_our_socket(&file)) {
        return remove_if_exists(&path).map_err(|error| Error::io("remove", &path, error));
    }
    Ok(())
}

/// Binds the socket over which a newer helper can ask. To be called with the lock.
pub(crate) fn bind(home: &Path) -> Result<ListeningSocket, Error> {
    remove_socket(home)?;
    let path = path_in(home);
    let bind = |path: &Path| listening_socket::bind(ShortSocketPath::of(path)?.path());
    let door = ListeningSocket::new(path, Box::new(bind));
    door.bind()?;
    Ok(door)
}

/// Only this user may take part in a handover, not even root.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid == euid() { Ok(()) } else { Err(io::Error::other(format!("a peer of uid {uid}"))) }
}
