//! `keybridge-remote undo`: undoes what a helper that was killed has left.

use keybridge_proto::report::{FailureKind, Purged};
use keybridge_proto::{Lane, printable};
use keybridge_remote::{
    DiscoveredLane, Environment, Error, Gnupg, SshFolder, UndoOutcome, purge, undo as undo_lane,
};

use super::arguments::UndoArguments;

/// Undoes every lane, even if another one fails, and prints what was done. What the host has to know of a
/// lane is a line with a [`Failure`](keybridge_proto::report::Failure). An error is one line, since the host
/// shows the last one.
pub(crate) fn run(arguments: &UndoArguments) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    runtime.block_on(async {
        let environment = Environment::of_process();
        let (mut said, mut failed, mut purged) = (Vec::new(), Vec::new(), None);
        // Backwards: the first one may have created folders for both.
        for lane in Lane::ALL.into_iter().rev() {
            match undo(lane, &environment, arguments).await {
                Ok(undone) => {
                    said.extend(undone.said);
                    purged = purged.or(undone.purged);
                }
                Err(error) => failed.push(error.to_string()),
            }
        }
        said.reverse();
        said.extend(
            purged.map(|it| String::from_utf8_lossy(it.to_line().trim_ascii()).into_owned()),
        );
        if failed.is_empty() { Ok(said.join("\n")) } else { Err(failed.join("; ")) }
    })
}

/// What was done for a lane.
struct UndoneLane {
    /// Nothing for a lane that has never been there, and whose folder is its own.
    said: Option<String>,
    /// What of the keyring was removed, if that is asked for.
    purged: Option<Purged>,
}

async fn undo(
    lane: Lane,
    environment: &Environment,
    arguments: &UndoArguments,
) -> Result<UndoneLane, Error> {
    let nothing = |error: &Error| UndoneLane { said: Some(error.to_string()), purged: None };
    let home = match DiscoveredLane::find(lane, environment, None).await {
        Ok(home) => home,
        // If the folder is gone, there is nothing to undo.
        Err(error) if error.kind() == FailureKind::NotFound => return Ok(nothing(&error)),
        // Nor is there without GnuPG, unless that has gone since.
        Err(error) if error.kind() == FailureKind::NoGnupg && !Gnupg::is_in_use(environment) => {
            return Ok(nothing(&error));
        }
        // A folder that may not be used has nothing of ours, unless that came later.
        Err(error) if lane == Lane::Ssh && !SshFolder::is_in_use(environment) => {
            return Ok(nothing(&error));
        }
        Err(error) => return Err(error),
    };
    if lane == Lane::Git && !home.path().exists() {
        return Ok(UndoneLane { said: None, purged: None });
    }
    let undone = undo_lane(&home, arguments.bridge.as_ref()).await?;
    let shown = printable(home.path().as_os_str().as_encoded_bytes());
    let who = match undone {
        UndoOutcome::Clean => None,
        UndoOutcome::InUse(Some(pid)) => Some(format!("a helper (pid {pid})")),
        UndoOutcome::InUse(None) => Some("a helper outside of this target".to_owned()),
    };
    if let Some(who) = who {
        let said = format!("{who} is at work in {shown}: nothing was undone there");
        let in_use = Error::new(FailureKind::InUse, said);
        // The helper needs the keys. What it doesn't need itself, it has undone or will.
        if arguments.purge {
            return Err(in_use);
        }
        return Ok(UndoneLane { said: Some(in_use.failure().encode()), purged: None });
    }
    let purged = match &home {
        DiscoveredLane::Gpg(gnupg) if arguments.purge => Some(purge(gnupg).await?),
        _ => None,
    };
    Ok(UndoneLane { said: Some(format!("nothing of a helper is left in {shown}")), purged })
}
