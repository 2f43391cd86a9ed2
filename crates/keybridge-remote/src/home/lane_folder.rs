//! The folder that a lane works in: its lock is there, and most of what it changes.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::FileId;
use crate::error::{Problem, StartError};
use crate::home::safe_path::{self, FolderRole};

/// GnuPG's home, or ssh's folder. It is made if it has to be, and has to stay the same folder.
#[derive(Debug, Clone)]
pub(crate) struct LaneFolder {
    role: FolderRole,
    path: PathBuf,
    id: Cell<Option<FileId>>,
    made: Cell<bool>,
}

impl LaneFolder {
    /// Looks whether the folder is there, and fit to be used. Changes nothing.
    pub(crate) fn find(role: FolderRole, path: PathBuf) -> Result<Self, StartError> {
        let id = safe_path::check(role, &path)?.as_ref().map(FileId::of);
        Ok(Self { role, path, id: Cell::new(id), made: Cell::new(false) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which folder it is, if it is there.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.id.get()
    }

    /// Whether there was none before us.
    pub(crate) fn was_made(&self) -> bool {
        self.made.get()
    }

    /// A helper before us has made the folder.
    pub(crate) fn was_made_before(&self) {
        self.made.set(true);
    }

    /// Makes the folder if it isn't there.
    pub(crate) fn make(&self) -> Result<(), StartError> {
        if self.id.get().is_none() {
            safe_path::make_private(&self.path)?;
            self.made.set(true);
            let metadata = std::fs::symlink_metadata(&self.path)
                .map_err(|error| StartError::io("looking at", &self.path, &error))?;
            self.id.set(Some(FileId::of(&metadata)));
        }
        self.check()
    }

    /// Whether it is still the folder that was found, and fit to be used.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let id = safe_path::check(self.role, &self.path)?.as_ref().map(FileId::of);
        if id.is_some() && id == self.id.get() {
            return Ok(());
        }
        let (what, shown) = (self.role, self.path.display());
        let problem = Problem::new(format!("{what} {shown} is not the folder that it was"))
            .hint("start the bridge again");
        Err(StartError::NotPermitted(problem))
    }

    /// Whether another folder has its place, so that nothing of ours can be in there.
    pub(crate) fn is_replaced(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| self.id.get() != Some(FileId::of(&metadata)))
    }

    /// Takes a folder away again that we made and nobody uses.
    pub(crate) fn unmake(&self) {
        if self.made.get()
            && !self.is_replaced()
            && let Err(error) = std::fs::remove_dir(&self.path)
        {
            tracing::debug!(%error, "the new folder stays");
        }
    }
}
