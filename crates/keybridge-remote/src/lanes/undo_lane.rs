//! Taking away what a helper that was killed has left.

use std::path::PathBuf;

use keybridge_proto::session::FirstError;

use crate::error::StartError;
use crate::footprint::Footprint;
use crate::home::lock::{HeldLock, Inherited, LaneLock, LockAttempt, acquire};
use crate::lanes::start_lane::remove_dead;
use crate::user_files::git;
use crate::{BridgeToken, DiscoveredLane, MarkedBlock, handover};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Nothing of a helper is left for this lane.
    Clean,
    /// A helper is at work there, and everything stays; its pid, if it has one here.
    InUse(Option<i32>),
}

/// Undoes what helpers did for a lane, if none is at work there; the place of one of this bridge is
/// taken first. Every step is done; the first error is returned.
pub async fn undo(
    discovered: &DiscoveredLane,
    bridge: Option<&BridgeToken>,
) -> Result<UndoOutcome, StartError> {
    let folder = discovered.folder();
    let path = LaneLock::path_in(folder.path());
    // Every helper has this file; without it a dead socket is somebody else's.
    let had_helper = std::fs::symlink_metadata(&path).is_ok();
    let own_socket = discovered.sockets().pop().unwrap_or_default();
    let known: Vec<MarkedBlock> =
        discovered.edits(&own_socket).into_iter().map(|edit| edit.block).collect();
    if !had_helper && known.iter().all(MarkedBlock::is_absent) {
        return Ok(UndoOutcome::Clean);
    }
    let is_of_bridge = |held: &HeldLock| bridge.is_some() && held.bridge().as_ref() == bridge;
    let (lock, inheritance) = match LaneLock::attempt(&path)? {
        LockAttempt::Acquired(lock) => {
            lock.set_holder(None);
            (lock, Inherited::Nothing)
        }
        LockAttempt::Held(held) if is_of_bridge(&held) => {
            drop(held);
            let taken = acquire(folder.path(), &own_socket, bridge, false).await?;
            (taken.lock, taken.inheritance)
        }
        LockAttempt::Held(held) => {
            return Ok(UndoOutcome::InUse(held.holder().map(|pid| pid.as_raw_nonzero().get())));
        }
    };
    let mut result = FirstError::default();
    if let Inherited::Sockets(sockets) = inheritance {
        for socket in sockets {
            let at = socket.path.clone();
            let removed = socket.remove();
            result.note(removed.map_err(|error| StartError::io("removing", &at, &error)));
        }
    }
    let Footprint { made_folder, socket, edits } = lock.record();
    if had_helper {
        let socket: PathBuf = socket.unwrap_or(own_socket);
        result.note(remove_dead(&socket, discovered).await);
    }
    result.note(handover::remove_leftover(folder.path()));
    for block in edits.iter().chain(known.iter().filter(|block| !edits.contains(block))) {
        result.note(block.remove().map_err(StartError::from));
    }
    let removed = git::remove_files(folder.path());
    result.note(removed.map_err(|error| StartError::io("cleaning", folder.path(), &error)));
    result.note(lock.release().map_err(|error| StartError::io("removing", &path, &error)));
    if made_folder {
        folder.was_made_before();
        folder.unmake();
    }
    result.into_result().map(|()| UndoOutcome::Clean)
}
