//! `keybridge-remote undo`: takes away what a helper that was killed has left in the user's home.

use keybridge_remote::{BridgeToken, Environment, Gnupg, StartError, Undone, undo};

/// What is to be said about it.
pub(crate) fn run(bridge: Option<&BridgeToken>) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("starting: {error}"))?;
    runtime.block_on(async {
        let gnupg = match Gnupg::find(Environment::of_process(), None).await {
            Ok(gnupg) => gnupg,
            // A home that is gone has taken everything with it.
            Err(StartError::NotFound(problem)) => return Ok(problem.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        let undone = undo(&gnupg, bridge).await.map_err(|error| error.to_string())?;
        let home = keybridge_proto::printable(gnupg.home().as_os_str().as_encoded_bytes());
        Ok(match undone {
            Undone::Clean => format!("nothing of a helper is left in {home}"),
            Undone::InUse(Some(pid)) => {
                format!("a helper (pid {pid}) is at work in {home}: nothing was undone")
            }
            Undone::InUse(None) => {
                format!("a helper outside of this target is at work in {home}: nothing was undone")
            }
        })
    })
}
