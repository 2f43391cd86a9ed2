//! A Unix socket of this program's own, at which other processes of it ask something.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

/// Listens at a path.
#[derive(Debug)]
pub(crate) struct LocalListener(UnixListener);

/// Who has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerUser {
    /// This user.
    Own,
    Root,
    Other,
}

impl LocalListener {
    /// Listens at a path where nothing is, for this user alone.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self(listener))
    }

    /// Waits for a client. Safe to cancel.
    pub(crate) async fn accept(&mut self) -> io::Result<(UnixStream, PeerUser)> {
        let (stream, _) = self.0.accept().await?;
        let own = geteuid().as_raw();
        let peer = match stream.peer_cred() {
            Ok(peer) if peer.uid() == own => PeerUser::Own,
            Ok(peer) if peer.uid() == 0 => PeerUser::Root,
            Ok(_) | Err(_) => PeerUser::Other,
        };
        Ok((stream, peer))
    }
}

/// Connects to the listener at a path.
pub(crate) async fn connect_to_listener(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// The same, for a program that waits for the answer.
pub(crate) fn ask_listener(path: &Path) -> io::Result<impl Read + Write> {
    std::os::unix::net::UnixStream::connect(path)
}
