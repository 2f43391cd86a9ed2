//! Files: who may use them, and what tells one from another.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::system_calls;
use crate::platform::Privacy;

/// Where all pipes are.
const PIPES: &str = r"\\.\pipe\";

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// A named pipe.
    Socket,
    File,
    Other,
}

/// What is at a path; links are followed. A pipe isn't looked at, which would open it.
pub(crate) fn path_kind(path: &Path) -> io::Result<PathKind> {
    if pipe_name(path).is_some() {
        return Ok(PathKind::Socket);
    }
    let is_file = fs::metadata(path)?.is_file();
    Ok(if is_file { PathKind::File } else { PathKind::Other })
}

/// The name of a pipe, if a path leads to one. Both slashes are used in such paths.
pub(super) fn pipe_name(path: &Path) -> Option<String> {
    let path = path.to_str()?.replace('/', r"\");
    let (start, name) = path.split_at_checked(PIPES.len())?;
    let is_name = start.eq_ignore_ascii_case(PIPES) && !name.is_empty();
    is_name.then(|| name.to_owned())
}

/// The names of all pipes there are.
pub(crate) fn pipe_names() -> Vec<String> {
    let entries = fs::read_dir(PIPES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The path of a pipe.
pub(crate) fn pipe_path(name: &str) -> PathBuf {
    format!("{PIPES}{name}").into()
}

/// Whether there is a pipe at a path. It isn't opened for that.
pub(crate) fn local_socket_exists(path: &Path) -> bool {
    pipe_name(path)
        .is_some_and(|name| pipe_names().iter().any(|there| there.eq_ignore_ascii_case(&name)))
}

/// Does nothing: a file is for those who may enter its folder.
pub(crate) const fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a folder that only this user can enter.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    system_calls::create_private_folder(path)
}

/// Creates a folder that only this user can enter, and that is removed when it is dropped.
pub(crate) fn private_temporary_folder(prefix: &str, parent: &Path) -> io::Result<TempDir> {
    // The user's own folder for temporary files is private.
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent)
}

/// Whether this is a folder, and no link to one: only its user can enter what we have created.
pub(crate) fn privacy_of(found: &Metadata) -> Privacy {
    if is_own(found) { Privacy::Private } else { Privacy::NotOurs }
}

/// Whether this is a folder, and no link to one.
pub(crate) fn is_own(found: &Metadata) -> bool {
    const REPARSE_POINT: u32 = 0x400;
    found.is_dir() && found.file_attributes() & REPARSE_POINT == 0
}

/// Nothing: only a helper on this machine could compare it, and helpers run on Linux alone.
pub(crate) const fn file_id(_: &Path) -> Option<(u64, u64)> {
    None
}

/// What tells an open file from all others, whatever its name is by now.
pub(crate) fn id_of_open_file(file: &File) -> Option<(u64, u64)> {
    system_calls::file_id(file).ok()
}

/// What shows that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    size: u64,
    created: u64,
    written: u64,
}

impl FileStamp {
    pub(crate) fn new(found: &Metadata) -> Self {
        Self {
            size: found.file_size(),
            created: found.creation_time(),
            written: found.last_write_time(),
        }
    }

    /// When it was changed, since 1970.
    pub(crate) const fn changed(&self) -> Duration {
        // Windows counts from 1601, in steps of 100 ns.
        const UNTIL_1970: u64 = 116_444_736_000_000_000;
        let steps = self.written.saturating_sub(UNTIL_1970);
        Duration::from_nanos(steps.saturating_mul(100))
    }
}
