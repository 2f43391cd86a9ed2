//! Folders that only this user can enter. Those of a process that was killed are removed later.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::platform::{is_own, parent_of_private_folders, private_temporary_folder};

const PREFIX: &str = "keybridge-podman-";

/// The lock in each folder. While it is held, the folder is in use.
const LOCK: &str = "lock";

/// A folder of our own, in the user's runtime folder or where temporary files are.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    folder: TempDir,
    _lock: File,
}

impl PrivateFolder {
    /// Makes a new one, and removes those of processes that were killed.
    pub(crate) fn make() -> io::Result<Self> {
        Self::make_in(&parent_of_private_folders())
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        remove_unused(parent);
        let folder = private_temporary_folder(PREFIX, parent)?;
        // Locked before it has its name, so that no other process finds it unlocked.
        let new = folder.path().join("new");
        let lock = File::create(&new)?;
        lock.try_lock()?;
        fs::rename(new, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of this user that aren't in use. Errors are ignored: it is only a clean-up.
fn remove_unused(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = || entry.metadata().is_ok_and(|found| is_own(&found));
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !is_ours() {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

crate::platform::tests_on_unix! {
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_private_and_those_that_were_left_are_removed() {
        use std::os::unix::fs::MetadataExt;
        let parent = tempfile::tempdir().unwrap();
        let used = PrivateFolder::make_in(parent.path()).unwrap();
        assert_eq!(fs::metadata(used.path()).unwrap().mode() & 0o777, 0o700);
        // Its owner was killed: the lock is free, and the folder stays.
        let PrivateFolder { folder, _lock: lock } = PrivateFolder::make_in(parent.path()).unwrap();
        let left = folder.keep();
        drop(lock);
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&left, &link).unwrap();
        let next = PrivateFolder::make_in(parent.path()).unwrap();
        assert!(!left.exists() && used.path().exists() && next.path().exists());
        assert!(link.is_symlink());
        let gone = used.path().to_owned();
        drop(used);
        assert!(!gone.exists());
    }
}
}
