//! Several windows on one remote share a bridge: the first window has it, and the others wait.

use serde_json::json;

use crate::Result;
use crate::editor::STATUS_INTERVAL;
use crate::editor::connection::EditorConnection;
use crate::editor::window::Window;
use crate::supervisor::BridgeStatus;
use crate::supervisor::control;
use crate::supervisor::state::{Lock, StateFolder};

/// Waits until no other window has the bridge, and sends the status of that bridge meanwhile. Returns
/// the lock, which makes this window the owner.
pub(crate) async fn wait_for_turn(
    folder: &StateFolder,
    window: &Window,
    editor: &EditorConnection,
) -> Result<Lock> {
    loop {
        if let Some(lock) = folder.lock()? {
            return Ok(lock);
        }
        window.use_others(folder);
        tokio::select! {
            ended = folder.ended() => ended?,
            () = tell_status(folder, editor) => {}
        }
    }
}

async fn tell_status(folder: &StateFolder, editor: &EditorConnection) {
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    let mut told: Option<Option<BridgeStatus>> = None;
    loop {
        ticks.tick().await;
        // A bridge that is starting or ending doesn't answer.
        let status = control::status(folder).await.ok();
        if told.as_ref() != Some(&status) {
            editor.tell("shared", &json!({ "status": status }));
            told = Some(status);
        }
    }
}
