//! An edit that a lane wants: lines in a file of the user's, and the files of ours that they name.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::{Access, access};

use super::marked_block::MarkedBlock;
use crate::error::Error;
use crate::footprint::{Change, Footprint};
use crate::home::safe_path::remove_if_exists;

/// Lines of ours in a file of the user's, and what it means if they can't be put there.
#[derive(Debug, Clone)]
pub(crate) struct PlannedEdit {
    pub(crate) block: MarkedBlock,
    /// Created before the lines are put in.
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) importance: Importance,
}

/// Whether a lane works without an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Importance {
    /// It doesn't.
    Needed,
    /// It does, with a warning that begins with this.
    Wanted(&'static str),
}

/// A file of ours.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    path: PathBuf,
    content: Vec<u8>,
    is_program: bool,
}

impl PlannedEdit {
    /// Whether a change is a part of this edit.
    pub(crate) fn includes(&self, change: &Change) -> bool {
        let is_file = |path: &PathBuf| self.files.iter().any(|file| file.path == *path);
        matches!(change, Change::EditedFile(block) if block.path() == self.block.path())
            || matches!(change, Change::CreatedFile(path) if is_file(path))
    }

    /// Makes the edit, each step on record before it is made.
    pub(crate) fn make(&self, footprint: &Footprint) -> Result<(), Error> {
        for file in &self.files {
            footprint.record(Change::CreatedFile(file.path.clone()))?;
            file.create().map_err(|error| Error::io("create", &file.path, error))?;
        }
        let change = Change::EditedFile(self.block.clone());
        let was_made_before = footprint.changes().contains(&change);
        footprint.record(change.clone())?;
        if let Err(error) = self.block.put() {
            // What can't be put in is rolled back.
            if !was_made_before {
                footprint.forget(|other| *other == change)?;
            }
            return Err(error.into());
        }
        // Lines that an earlier helper put there are replaced.
        let is_replaced =
            |block: &MarkedBlock| block.path() == self.block.path() && *block != self.block;
        footprint.forget(|change| matches!(change, Change::EditedFile(block) if is_replaced(block)))
    }
}

impl PlannedFile {
    pub(crate) fn new(path: PathBuf, content: impl Into<Vec<u8>>) -> Self {
        Self { path, content: content.into(), is_program: false }
    }

    pub(crate) fn program(path: PathBuf, content: impl Into<Vec<u8>>) -> Self {
        Self { path, content: content.into(), is_program: true }
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates it, in the place of one that an earlier helper left. A link there is not followed.
    pub(crate) fn create(&self) -> io::Result<()> {
        remove_if_exists(&self.path)?;
        let mode = if self.is_program { 0o700 } else { 0o600 };
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&self.path)?;
        file.write_all(&self.content)?;
        if self.is_program {
            // A file system can forbid programs.
            access(&self.path, Access::EXEC_OK)?;
        }
        Ok(())
    }
}
