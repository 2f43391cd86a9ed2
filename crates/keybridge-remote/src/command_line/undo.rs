//! `keybridge-remote undo`: undoes what a helper that was killed has left.

use keybridge_proto::report::FailureKind;
use keybridge_proto::{Lane, printable};
use keybridge_remote::{
    DiscoveredLane, Environment, Error, SshFolder, UndoOutcome, purge, remove_direct_folders,
    undo as undo_lane,
};

use super::arguments::UndoArguments;

/// Undoes every lane, even if another one fails, and prints what was done.
pub(crate) fn run(arguments: &UndoArguments) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    remove_direct_folders();
    runtime.block_on(async {
        let environment = Environment::of_process();
        let (mut said, mut failed) = (Vec::new(), Vec::new());
        // Backwards: the first one may have created folders for both.
        for lane in Lane::ALL.into_iter().rev() {
            match undo(lane, &environment, arguments).await {
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
    arguments: &UndoArguments,
) -> Result<String, Error> {
    let home = match DiscoveredLane::find(lane, environment, None).await {
        Ok(home) => home,
        // If the folder is gone, there is nothing to undo.
        Err(error) if matches!(error.kind(), FailureKind::NotFound | FailureKind::NoGnupg) => {
            return Ok(error.to_string());
        }
        // A folder that may not be used has nothing of ours, unless that came later.
        Err(error) if lane == Lane::Ssh && !SshFolder::is_in_use(environment) => {
            return Ok(error.to_string());
        }
        Err(error) => return Err(error),
    };
    let undone = undo_lane(&home, arguments.bridge.as_ref()).await?;
    let shown = printable(home.path().as_os_str().as_encoded_bytes());
    let said = match undone {
        UndoOutcome::Clean => format!("nothing of a helper is left in {shown}"),
        UndoOutcome::InUse(Some(pid)) => {
            format!("a helper (pid {pid}) is at work in {shown}: nothing was undone")
        }
        UndoOutcome::InUse(None) => {
            format!("a helper outside of this target is at work in {shown}: nothing was undone")
        }
    };
    if !arguments.purge {
        return Ok(said);
    }
    match (&home, undone) {
        (DiscoveredLane::Gpg(gnupg), UndoOutcome::Clean) => {
            Ok(format!("{said}\n{}", purge(gnupg).await?))
        }
        (DiscoveredLane::Ssh(_), UndoOutcome::Clean) => Ok(said),
        // It needs the keys.
        (_, UndoOutcome::InUse(_)) => Err(Error::new(FailureKind::InUse, said)),
    }
}
