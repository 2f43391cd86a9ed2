//! `keybridge-remote undo`: undoes what a helper that was killed has left.

use keybridge_proto::report::FailureKind;
use keybridge_proto::{Lane, printable};
use keybridge_remote::{
    DiscoveredLane, Environment, Error, PurgeOutcome, SshFolder, UndoOutcome, purge,
    remove_direct_folders, undo as undo_lane,
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
        let (mut said, mut failed, mut purged) = (Vec::new(), Vec::new(), None);
        // Backwards: the first one may have created folders for both.
        for lane in Lane::ALL.into_iter().rev() {
            match undo(lane, &environment, arguments).await {
                Ok(undone) => {
                    said.push(undone.said);
                    purged = purged.or(undone.purged);
                }
                Err(error) => failed.push(error.to_string()),
            }
        }
        said.reverse();
        said.extend(purged.map(|purged| purged.to_string()));
        if failed.is_empty() { Ok(said.join("\n")) } else { Err(failed.join("\n")) }
    })
}

/// What was done for a lane.
struct UndoneLane {
    said: String,
    /// What of the keyring was removed, if that is asked for.
    purged: Option<PurgeOutcome>,
}

async fn undo(
    lane: Lane,
    environment: &Environment,
    arguments: &UndoArguments,
) -> Result<UndoneLane, Error> {
    let nothing = |error: &Error| UndoneLane { said: error.to_string(), purged: None };
    let home = match DiscoveredLane::find(lane, environment, None).await {
        Ok(home) => home,
        // If the folder is gone, there is nothing to undo.
        Err(error) if matches!(error.kind(), FailureKind::NotFound | FailureKind::NoGnupg) => {
            return Ok(nothing(&error));
        }
        // A folder that may not be used has nothing of ours, unless that came later.
        Err(error) if lane == Lane::Ssh && !SshFolder::is_in_use(environment) => {
            return Ok(nothing(&error));
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
    let purged = match (&home, undone) {
        (DiscoveredLane::Gpg(gnupg), UndoOutcome::Clean) if arguments.purge => {
            Some(purge(gnupg).await?)
        }
        // The helper needs the keys.
        (_, UndoOutcome::InUse(_)) if arguments.purge => {
            return Err(Error::new(FailureKind::InUse, said));
        }
        _ => None,
    };
    Ok(UndoneLane { said, purged })
}
