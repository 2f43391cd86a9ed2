//! Folders of a test's own, and what is in them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

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

/// Everything below a path: inode, mode and owner, and a file's content or a link's target.
pub fn snapshot(path: &Path) -> BTreeMap<PathBuf, (u64, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (metadata.ino(), metadata.mode(), metadata.uid(), content));
    }
    found
}
