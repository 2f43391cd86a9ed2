//! Taking away what a helper that was killed has left.

use keybridge_proto::session::FirstError;

use crate::error::StartError;
use crate::home_lock::{Attempt, Held, HomeLock, Inheritance, take};
use crate::occupant::Occupant;
use crate::{BridgeToken, Gnupg, MarkedBlock, handover, listening};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// Nothing of a helper is left in the home.
    Clean,
    /// A helper is at work there, and everything stays; its pid, if it has one here.
    InUse(Option<i32>),
}

/// Undoes what helpers did in this user's home, if none is at work there; the place of one of this bridge
/// is taken first. Every step is done; the first error is returned.
pub async fn undo(gnupg: &Gnupg, bridge: Option<&BridgeToken>) -> Result<Undone, StartError> {
    let path = HomeLock::path_in(gnupg.home());
    if !gnupg.home().exists() {
        return Ok(Undone::Clean);
    }
    // Every helper has this file; without it a dead socket is somebody else's.
    let had_helper = std::fs::symlink_metadata(&path).is_ok();
    let is_of_bridge = |held: &Held| bridge.is_some() && held.bridge().as_ref() == bridge;
    let (lock, inheritance) = match HomeLock::attempt(&path)? {
        Attempt::Taken(lock) => {
            lock.sign(None);
            (lock, Inheritance::Nothing)
        }
        Attempt::Held(held) if is_of_bridge(&held) => {
            drop(held);
            let taken = take(gnupg.home(), gnupg.socket(), bridge, false).await?;
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
    if had_helper {
        result.note(remove_socket(gnupg).await);
    }
    result.note(handover::remove_leftover(gnupg.home()));
    let block = MarkedBlock::gpg_conf(gnupg.home(), gnupg.version());
    result.note(block.remove().map_err(StartError::from));
    result.note(lock.release().map_err(|error| StartError::io("removing", &path, &error)));
    result.into_result().map(|()| Undone::Clean)
}

/// Removes the socket if nobody listens there.
async fn remove_socket(gnupg: &Gnupg) -> Result<(), StartError> {
    let path = gnupg.socket();
    match Occupant::look(path, gnupg).await? {
        Occupant::Stale => {
            listening::remove(path).map_err(|error| StartError::io("removing", path, &error))
        }
        Occupant::Nobody
        | Occupant::AgentWithoutKeys(_)
        | Occupant::Alive(..)
        | Occupant::Foreign(_) => Ok(()),
    }
}
