//! Undoing a lane from outside: after helpers that were killed, and instead of one of the same bridge.

use crate::error::Error;
use crate::footprint::{Change, Footprint, UndoContext, usual_changes};
use crate::home::acquire_lock::acquire;
use crate::home::lock::{HeldLock, LaneLock, LockAttempt};
use crate::{BridgeToken, DiscoveredLane};

/// The result of undoing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Nothing of a helper is left for this lane.
    Clean,
    /// A helper is at work there, and everything stays; its pid, if it has one here.
    InUse(Option<i32>),
}

/// Undoes what helpers did for a lane, if none is at work there; one of this bridge has to make way
/// first. Every step is tried; the first error is returned.
pub async fn undo(
    discovered: &DiscoveredLane,
    bridge: Option<&BridgeToken>,
) -> Result<UndoOutcome, Error> {
    let folder = discovered.folder();
    let path = LaneLock::path_in(folder.path());
    // Every helper has this file; without it a dead socket is not a helper's.
    let had_helper = std::fs::symlink_metadata(&path).is_ok();
    let usual = usual_changes(discovered);
    let is_absent =
        |change: &Change| !matches!(change, Change::EditedFile(block) if !block.is_absent());
    if !had_helper && usual.iter().all(is_absent) {
        return Ok(UndoOutcome::Clean);
    }
    let own_socket = discovered.sockets().pop().unwrap_or_default();
    let is_of_bridge = |held: &HeldLock| bridge.is_some() && held.bridge().as_ref() == bridge;
    let lock = match LaneLock::attempt(&path)? {
        LockAttempt::Acquired(lock) => lock,
        LockAttempt::Held(held) if is_of_bridge(&held) => {
            drop(held);
            acquire(folder.path(), &own_socket, bridge, false).await?
        }
        LockAttempt::Held(held) => {
            return Ok(UndoOutcome::InUse(held.holder().map(|pid| pid.as_raw_nonzero().get())));
        }
    };
    lock.set_holder(None);
    let footprint = Footprint::read(lock, discovered);
    footprint.assume(usual);
    let context = UndoContext { discovered, bound: &[] };
    footprint.undo_all(&context).await.map(|()| UndoOutcome::Clean)
}
