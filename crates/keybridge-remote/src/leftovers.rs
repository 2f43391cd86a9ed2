//! Taking away what a helper that was killed has left.

use std::path::PathBuf;

use keybridge_proto::session::FirstError;

use crate::error::StartError;
use crate::home_lock::{Attempt, Held, HomeLock, Inheritance, Record, take};
use crate::{BridgeToken, LaneHome, MarkedBlock, git, handover, place};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// Nothing of a helper is left for this lane.
    Clean,
    /// A helper is at work there, and everything stays; its pid, if it has one here.
    InUse(Option<i32>),
}

/// Undoes what helpers did for a lane, if none is at work there; the place of one of this bridge is
/// taken first. Every step is done; the first error is returned.
pub async fn undo(home: &LaneHome, bridge: Option<&BridgeToken>) -> Result<Undone, StartError> {
    let folder = home.folder();
    let path = HomeLock::path_in(folder.path());
    // Every helper has this file; without it a dead socket is somebody else's.
    let had_helper = std::fs::symlink_metadata(&path).is_ok();
    let own_socket = home.sockets().pop().unwrap_or_default();
    let known: Vec<MarkedBlock> =
        home.edits(&own_socket).into_iter().map(|edit| edit.block).collect();
    if !had_helper && known.iter().all(MarkedBlock::is_absent) {
        return Ok(Undone::Clean);
    }
    let is_of_bridge = |held: &Held| bridge.is_some() && held.bridge().as_ref() == bridge;
    let (lock, inheritance) = match HomeLock::attempt(&path)? {
        Attempt::Taken(lock) => {
            lock.sign(None);
            (lock, Inheritance::Nothing)
        }
        Attempt::Held(held) if is_of_bridge(&held) => {
            drop(held);
            let taken = take(folder.path(), &own_socket, bridge, false).await?;
            (taken.lock, taken.inheritance)
        }
        Attempt::Held(held) => {
            return Ok(Undone::InUse(held.holder().map(|pid| pid.as_raw_nonzero().get())));
        }
    };
    let mut result = FirstError::default();
    if let Inheritance::Sockets(sockets) = inheritance {
        for socket in sockets {
            let at = socket.path.clone();
            let removed = socket.remove();
            result.note(removed.map_err(|error| StartError::io("removing", &at, &error)));
        }
    }
    let Record { made_folder, socket, edits } = lock.record();
    if had_helper {
        let socket: PathBuf = socket.unwrap_or(own_socket);
        result.note(place::remove_dead(&socket, home).await);
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
    result.into_result().map(|()| Undone::Clean)
}
