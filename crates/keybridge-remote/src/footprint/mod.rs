//! The footprint of a helper: everything that it changed in the target for one lane, in order. The lock
//! file stores it, and all undoing uses it: when a helper stops, when it fails to start, and after one that
//! was killed.
//!
//! A change is recorded before it is made. So whatever a kill leaves is on record, and undoing something
//! that was never done, or that the user has undone meanwhile, has to be harmless. Undoing goes backwards.
//! What can't be undone stays on record, and the lock file with it, for the next attempt.

mod change;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use keybridge_proto::session::FirstError;

use crate::error::Error;
use crate::home::lock::LaneLock;
use crate::lanes::discovery::DiscoveredLane;
use crate::socket::listening_socket::ListeningSocket;
use crate::user_files::{git_entry_files, git_settings_files};

pub(crate) use change::{Change, path_text};

/// The changes of a lane, and the lock whose file stores them.
#[derive(Debug)]
pub(crate) struct Footprint {
    lock: LaneLock,
    changes: RefCell<Vec<Change>>,
}

/// What undoing has to know of the target.
pub(crate) struct UndoContext<'a> {
    pub(crate) discovered: &'a DiscoveredLane,
    /// The sockets that this process has bound: they are known by their inode.
    pub(crate) bound: &'a [Rc<ListeningSocket>],
}

impl Footprint {
    /// Reads what earlier holders of the lock have recorded, less what they can't have done.
    pub(crate) fn read(lock: LaneLock, discovered: &DiscoveredLane) -> Self {
        let mut changes = change::decode(&lock.stored());
        changes.retain(|change| change.may_be_ours(discovered));
        Self { lock, changes: RefCell::new(changes) }
    }

    /// What is on record.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.changes.borrow().clone()
    }

    /// The sockets on record.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        let path = |change| if let Change::BoundSocket(path) = change { Some(path) } else { None };
        self.changes().into_iter().filter_map(path).collect()
    }

    /// Records a change that is about to be made. After an error it must not be made.
    pub(crate) fn record(&self, change: Change) -> Result<(), Error> {
        let mut changes = self.changes();
        if !changes.contains(&change) {
            changes.push(change);
        }
        self.store(changes)
    }

    /// Adds changes that helpers make and that may be missing on record. They are undone first.
    pub(crate) fn assume(&self, others: Vec<Change>) {
        let mut changes = self.changes.borrow_mut();
        for change in others {
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }

    /// Drops a record: the change is undone, or another one has replaced it.
    pub(crate) fn forget(&self, is_gone: impl Fn(&Change) -> bool) -> Result<(), Error> {
        let mut changes = self.changes();
        changes.retain(|change| !is_gone(change));
        self.store(changes)
    }

    /// Undoes some of the changes, the last one first. Each one is tried; the first error is returned.
    /// The folder of the lock file is left for [`Self::undo_all`].
    pub(crate) async fn undo(
        &self,
        is_chosen: impl Fn(&Change) -> bool,
        context: &UndoContext<'_>,
    ) -> Result<(), Error> {
        let mut result = FirstError::default();
        let mut undone = Vec::new();
        for change in self.changes().into_iter().rev() {
            if change == Change::CreatedLaneFolder || !is_chosen(&change) {
                continue;
            }
            match change.undo(context).await {
                Ok(()) => undone.push(change),
                Err(error) => result.note(Err(error)),
            }
        }
        result.note(self.forget(|change| undone.contains(change)));
        result.into_result()
    }

    /// Undoes everything, then removes the lock file, then its folder if that is ours.
    pub(crate) async fn undo_all(&self, context: &UndoContext<'_>) -> Result<(), Error> {
        self.undo_except(&[], context).await
    }

    /// Undoes everything but these. If none of them is there, the lock file goes too.
    pub(crate) async fn undo_except(
        &self,
        kept: &[Change],
        context: &UndoContext<'_>,
    ) -> Result<(), Error> {
        let mut result = FirstError::default();
        result.note(self.undo(|change| !kept.contains(change), context).await);
        let left = self.changes();
        if left.iter().all(|change| *change == Change::CreatedLaneFolder) {
            result.note(self.lock.remove_file());
            for change in left {
                result.note(change.undo(context).await);
            }
        }
        result.into_result()
    }

    fn store(&self, changes: Vec<Change>) -> Result<(), Error> {
        let text = change::encode(&changes);
        if text != self.lock.stored() {
            self.lock.store(text)?;
        }
        self.changes.replace(changes);
        Ok(())
    }
}

/// What every helper may have done for a lane, recorded or not.
pub(crate) fn usual_changes(discovered: &DiscoveredLane) -> Vec<Change> {
    let socket = discovered.sockets().pop().unwrap_or_default();
    let edits = discovered.edits(&socket).into_iter().map(|edit| Change::EditedFile(edit.block));
    let files: Vec<_> = match discovered {
        DiscoveredLane::Gpg(_) | DiscoveredLane::Ssh(_) => {
            git_settings_files::paths_in(discovered.path()).into()
        }
        DiscoveredLane::Git(_) => git_entry_files::paths_in(discovered.path()).into(),
    };
    edits.chain(files.into_iter().map(Change::CreatedFile)).collect()
}

#[cfg(test)]
mod tests;
