//! Files: who may use them, and what tells one from another.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::platform::Privacy;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    Socket,
    File,
    Other,
}

/// What is at a path; links are followed.
pub(crate) fn path_kind(path: &Path) -> io::Result<PathKind> {
    let kind = fs::metadata(path)?.file_type();
    Ok(match (kind.is_socket(), kind.is_file()) {
        (true, _) => PathKind::Socket,
        (false, true) => PathKind::File,
        (false, false) => PathKind::Other,
    })
}

/// Whether there is something at the path of a socket. Nothing may listen there.
pub(crate) fn local_socket_exists(path: &Path) -> bool {
    path.exists()
}

/// Has a file that is created be for this user alone.
pub(crate) fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Creates a folder that only this user can enter.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Creates a folder that only this user can enter, and that is removed when it is dropped.
pub(crate) fn private_temporary_folder(prefix: &str, parent: &Path) -> io::Result<TempDir> {
    let permissions = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(prefix).permissions(permissions).tempdir_in(parent)
}

/// Whether only this user can enter what was found, which isn't followed if it is a link.
pub(crate) fn privacy_of(_: &Path, found: &Metadata) -> Privacy {
    match is_own(found) {
        true if found.mode().trailing_zeros() >= 6 => Privacy::Private,
        true => Privacy::TooOpen,
        false => Privacy::NotOurs,
    }
}

/// Whether this is a folder of this user's.
pub(crate) fn is_own(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == geteuid().as_raw()
}

/// What tells the file at a path from all others of the host: device and inode.
pub(crate) fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// What tells an open file from others of its folder, whatever its name is by now.
pub(crate) fn id_of_open_file(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// What shows that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn new(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            // A rename, a chmod and a restored time show here too.
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// When it was changed, since 1970.
    pub(crate) fn changed(&self) -> Duration {
        let (seconds, nanoseconds) = self.changed;
        let seconds = u64::try_from(seconds).unwrap_or_default();
        Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or_default())
    }
}
