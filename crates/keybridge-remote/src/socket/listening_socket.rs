//! A socket that clients connect to: bound for this user alone, and known by its inode.

use std::cell::{Cell, RefCell};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_proto::report::FailureKind;
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::UnixListener;
use tokio::sync::Notify;

use crate::FileId;
use crate::error::{Error, how_to_make};
use crate::home::safe_path::{self, FolderRole, euid, remove_if_exists};

/// `sun_path` holds 108 bytes with its NUL.
pub(crate) const MAX_PATH: usize = 107;

/// Binds a socket that only this user can ever connect to.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // The umask is the whole process's, which has one thread.
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

/// The listening socket of a bridge. It can be bound again while it is served.
pub(crate) struct ListeningSocket {
    path: PathBuf,
    /// Held as long as the socket is ours, so that its inode can't be reused.
    listener: RefCell<Option<Rc<UnixListener>>>,
    identity: Cell<Option<FileId>>,
    changed: Notify,
}

impl ListeningSocket {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            listener: RefCell::default(),
            identity: Cell::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the folder exists and is safe.
    pub(crate) fn check_folder(&self) -> Result<(), Error> {
        let folder = self.path.parent().unwrap_or(&self.path);
        if safe_path::check(FolderRole::SocketFolder, folder)?.is_some() {
            return Ok(());
        }
        let shown = folder.display();
        let message = format!("the folder of the socket, {shown}, doesn't exist");
        Err(Error::new(FailureKind::NotFound, message).hint(how_to_make(folder)))
    }

    /// Binds at a path where nothing is, and drops the old listener.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        self.check_folder()?;
        let io = |error| Error::io("bind", &self.path, error);
        let listener = bind(&self.path).map_err(io)?;
        let metadata = std::fs::symlink_metadata(&self.path).map_err(io)?;
        if !is_our_socket(&metadata) {
            let shown = self.path.display();
            let message = format!("{shown} was replaced while it was being bound");
            return Err(Error::new(FailureKind::NotPermitted, message).hint("try again"));
        }
        self.identity.set(Some(FileId::of(&metadata)));
        self.listener.replace(Some(Rc::new(listener)));
        self.changed.notify_one();
        Ok(())
    }

    /// Whether the path still leads to the socket that was bound last.
    pub(crate) fn is_in_place(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| self.identity.get() == Some(FileId::of(&metadata)))
    }

    pub(crate) fn listener(&self) -> Option<Rc<UnixListener>> {
        self.listener.borrow().clone()
    }

    /// Waits until the socket was bound again.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Removes the socket if it is the one that was bound, and closes the listener.
    pub(crate) fn close(&self) -> io::Result<()> {
        let result = if self.is_in_place() { remove_if_exists(&self.path) } else { Ok(()) };
        self.listener.replace(None);
        self.identity.set(None);
        result
    }
}

/// Whether this is a socket that we may remove.
pub(crate) fn is_our_socket(metadata: &Metadata) -> bool {
    metadata.file_type().is_socket() && metadata.uid() == euid()
}
