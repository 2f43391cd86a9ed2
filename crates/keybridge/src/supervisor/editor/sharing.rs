//! One bridge for a remote, however many windows: the first has it, and the others wait their turn.

use serde_json::json;

use super::LOOK;
use super::window::Window;
use super::wire::Wire;
use crate::Result;
use crate::supervisor::BridgeStatus;
use crate::supervisor::control::{self, Reply, Request};
use crate::supervisor::state::{Lock, StateFolder};

/// Waits until no other window has the bridge, and tells how that one is until then. No other gets it
/// while the lock is held.
pub(super) async fn wait_for_turn(
    folder: &StateFolder,
    window: &Window,
    wire: &Wire,
) -> Result<Lock> {
    loop {
        if let Some(lock) = folder.lock()? {
            return Ok(lock);
        }
        window.shares(folder);
        tokio::select! {
            ended = folder.ended() => ended?,
            () = tell_status(folder, wire) => {}
        }
    }
}

async fn tell_status(folder: &StateFolder, wire: &Wire) {
    let mut ticks = tokio::time::interval(LOOK);
    let mut told: Option<Option<BridgeStatus>> = None;
    loop {
        ticks.tick().await;
        let status = match control::ask(&folder.control_socket(), &Request::Status).await {
            Ok(Reply::Status(status)) => Some(status),
            // It is just coming or going.
            Ok(Reply::Synced { .. } | Reply::Done | Reply::Noted { .. } | Reply::Failed(_))
            | Err(_) => None,
        };
        if told.as_ref() != Some(&status) {
            wire.tell("shared", &json!({ "status": status }));
            told = Some(status);
        }
    }
}
