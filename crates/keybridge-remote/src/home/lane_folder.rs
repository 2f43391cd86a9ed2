//! The folder that a lane works in: its lock is there, and most of what it changes.

use std::cell::Cell;
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use keybridge_proto::report::FailureKind;

use crate::error::{Error, how_to_make};
use crate::home::safe_path::{self, FolderRole};

/// GnuPG's home, or ssh's folder. It is made if it has to be, and has to stay the same folder.
#[derive(Debug, Clone)]
pub(crate) struct LaneFolder {
    role: FolderRole,
    path: PathBuf,
    id: Cell<Option<FileId>>,
}

impl LaneFolder {
    /// Looks whether the folder is there, and fit to be used. Changes nothing.
    pub(crate) fn find(role: FolderRole, path: PathBuf) -> Result<Self, Error> {
        let id = safe_path::check(role, &path)?.as_ref().map(FileId::of);
        Ok(Self { role, path, id: Cell::new(id) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which folder it is, if it is there.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.id.get()
    }

    /// Creates the folder if it isn't there. Says whether it did.
    pub(crate) fn create(&self) -> Result<bool, Error> {
        let is_missing = self.id.get().is_none();
        if is_missing {
            self.check_parent()?;
            safe_path::make_private(&self.path)?;
            let metadata = std::fs::symlink_metadata(&self.path)
                .map_err(|error| Error::io("look at", &self.path, error))?;
            self.id.set(Some(FileId::of(&metadata)));
        }
        self.check().map(|()| is_missing)
    }

    /// Creates nothing above the folder: a home folder that is missing may be mounted later.
    fn check_parent(&self) -> Result<(), Error> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        match std::fs::metadata(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (what, shown) = (self.role, self.path.display());
                let parent_shown = parent.display();
                let message = format!("can't create {what} {shown}: {parent_shown} doesn't exist");
                Err(Error::new(FailureKind::NotFound, message)
                    .hint(format!("create it in the target: {}", how_to_make(parent)))
                    .hint("or bridge as a user whose home folder exists"))
            }
            // What else is wrong shows when the folder is created.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Whether it is still the folder that was found, and fit to be used.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let id = safe_path::check(self.role, &self.path)?.as_ref().map(FileId::of);
        if id.is_some() && id == self.id.get() {
            return Ok(());
        }
        let (what, shown) = (self.role, self.path.display());
        let message = format!("{what} {shown} is not the folder that it was");
        Err(Error::new(FailureKind::NotPermitted, message).hint("start the bridge again"))
    }

    /// Whether another folder has its place, so that nothing of ours can be in there.
    pub(crate) fn is_replaced(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| self.id.get() != Some(FileId::of(&metadata)))
    }

    /// Removes a folder of ours, unless somebody uses it.
    pub(crate) fn remove_if_empty(&self) {
        if !self.is_replaced()
            && let Err(error) = std::fs::remove_dir(&self.path)
        {
            tracing::debug!(%error, "the folder that was created stays");
        }
    }
}

/// Which file or folder it is, whatever its path: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl FromStr for FileId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (device, inode) = text.split_once(':')?;
            Some(Self { device: device.parse().ok()?, inode: inode.parse().ok()? })
        };
        parse().ok_or("expected a device and an inode as decimal numbers, DEVICE:INODE")
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_folder_that_does_not_exist_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("missing");
        let gnupg = LaneFolder::find(FolderRole::GnupgHome, home.join(".gnupg")).unwrap();
        let error = gnupg.create().unwrap_err();
        let failure = error.failure();
        let shown = home.display();
        assert_eq!(failure.kind, FailureKind::NotFound);
        let message = format!("can't create the GnuPG home {shown}/.gnupg: {shown} doesn't exist");
        assert_eq!(failure.message, message);
        assert_eq!(failure.hints[0], format!("create it in the target: mkdir -p -m 700 {shown}"));
        assert!(!home.exists());
    }
}
