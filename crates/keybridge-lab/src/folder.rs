//! Folders of a test's own, and what is in them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{command, eventually, run_with};

/// A new folder under a path that is short: that of a socket may have 107 bytes.
pub fn short_folder(prefix: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in("/tmp").unwrap();
    // Whatever the umask is: a folder that others can write to is refused.
    set_mode(folder.path(), 0o700);
    folder
}

/// Several tests act as other users.
#[track_caller]
pub fn need_root() {
    assert!(rustix::process::geteuid().is_root(), "this test has to be run as root");
}

/// What a program wrote, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a folder that only this user can enter.
pub fn make_private(path: &Path) {
    DirBuilder::new().mode(0o700).create(path).unwrap();
}

/// Changes what may be done with a file.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a file or a link to another user.
pub fn set_owner(path: &Path, uid: u32) {
    need_root();
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

/// Bytes without a pattern that anything could compress or mistake, the same each time.
pub fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(size).collect()
}

/// Writes a program that can be run at once. The file is never open in this process: another thread that
/// starts a program just then would have the new process hold it open for a moment, and a file that is open
/// for writing can't be run.
#[track_caller]
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    let script = "cat >\"$1\" && chmod 755 \"$1\"";
    run_with(command("sh").args(["-c", script, "sh"]).arg(path), content.as_ref());
}

/// Leaves a socket file with no listener.
#[track_caller]
pub fn leave_dead_socket(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
    // A process that another thread starts just now may hold it for a moment.
    eventually("nobody listens", || UnixStream::connect(path).is_err());
}

/// Everything below a path: inode, mode and owner, and a file's content or a link's target.
pub fn snapshot(path: &Path) -> BTreeMap<PathBuf, (u64, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let Some((metadata, content)) = there(look_at(&path)) else { continue };
        if metadata.is_dir() {
            let entries = there(fs::read_dir(&path)).into_iter().flatten();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (metadata.ino(), metadata.mode(), metadata.uid(), content));
    }
    found
}

/// What a path is, and a file's content or a link's target.
fn look_at(path: &Path) -> io::Result<(Metadata, Vec<u8>)> {
    let metadata = fs::symlink_metadata(path)?;
    let content = if metadata.is_symlink() {
        fs::read_link(path)?.into_os_string().into_encoded_bytes()
    } else if metadata.is_file() {
        fs::read(path)?
    } else {
        Vec::new()
    };
    Ok((metadata, content))
}

/// What was found, unless it has gone meanwhile: programs have files for a moment.
fn there<T>(found: io::Result<T>) -> Option<T> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.unwrap()),
    }
}
