//! `keybridge-remote undo`: undoes what a helper that was killed has left.

use keybridge_proto::report::FailureKind;
use keybridge_proto::{Lane, printable};
use keybridge_remote::{
    BridgeToken, DiscoveredLane, Environment, Error, SshFolder, UndoOutcome, remove_direct_folders,
    undo as undo_lane,
};

/// Undoes every lane, whatever becomes of the others, and says what was done.
pub(crate) fn run(bridge: Option<&BridgeToken>) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    remove_direct_folders();
    runtime.block_on(async {
        let environment = Environment::of_process();
        let (mut said, mut failed) = (Vec::new(), Vec::new());
        for lane in Lane::ALL {
            match undo(lane, &environment, bridge).await {
                Ok(text) => said.push(text),
                Err(error) => failed.push(error.to_string()),
            }
        }
        if failed.is_empty() { Ok(said.join("\n")) } else { Err(failed.join("\n")) }
    })
}

async fn undo(
    lane: Lane,
    environment: &Environment,
    bridge: Option<&BridgeToken>,
) -> Result<String, Error> {
    let home = match DiscoveredLane::find(lane, environment, None).await {
        Ok(home) => home,
        // What is gone has taken everything with it.
        Err(error) if matches!(error.kind(), FailureKind::NotFound | FailureKind::NoGnupg) => {
            return Ok(error.to_string());
        }
        // A folder that may not be used has nothing of ours, unless that came later.
        Err(error) if lane == Lane::Ssh && !SshFolder::is_in_use(environment) => {
            return Ok(error.to_string());
        }
        Err(error) => return Err(error),
    };
    let undone = undo_lane(&home, bridge).await?;
    let shown = printable(home.path().as_os_str().as_encoded_bytes());
    Ok(match undone {
        UndoOutcome::Clean => format!("nothing of a helper is left in {shown}"),
        UndoOutcome::InUse(Some(pid)) => {
            format!("a helper (pid {pid}) is at work in {shown}: nothing was undone")
        }
        UndoOutcome::InUse(None) => {
            format!("a helper outside of this target is at work in {shown}: nothing was undone")
        }
    })
}
