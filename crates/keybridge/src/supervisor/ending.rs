//! Ends bridges, by force if need be, and undoes what those have left that couldn't do it themselves.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use keybridge_proto::report::Purged;
use serde::{Deserialize, Serialize};

use super::control;
use super::lifecycle::UNDO_TIME;
use super::manager::BridgeManager;
use super::state::StateFolder;
use crate::checks::Check;
use crate::setup::LinkSetup;
use crate::target::{Target, TargetAddress};
use crate::{Error, Result};

/// How long a bridge may take to begin to end.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// How long after a failure a bridge is asked again to stop.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What became of the changes in a target when its bridge ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DownOutcome {
    /// They are undone.
    Undone {
        /// Whether a dialog of an agent may be open for an operation that was given up.
        may_ask: bool,
    },
    /// They are, but for where another bridge's helper is at work, which undoes the rest.
    InUse(Vec<String>),
    /// The container is gone, and they with it.
    Removed(String),
    /// The version 1 server there has ended, which alone knows them. This is left.
    LeftByServer(Vec<String>),
    /// The target can't be reached now, for this reason. They are undone at the next `up` or `down`.
    Later(String),
}

/// What is done to a process that doesn't end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Force {
    Terminate,
    Kill,
}

impl BridgeManager {
    /// Ends a bridge, and waits until it is gone. One that doesn't answer is ended by force, and undone from
    /// here.
    pub(crate) async fn down(&self, folder: &StateFolder) -> Result<DownOutcome> {
        let has_begun = Cell::new(false);
        let stopped = async {
            loop {
                if let Ok(stopping) = control::stop(folder).await {
                    has_begun.set(true);
                    return stopping.outcome().await;
                }
                // It may be ending by itself, or not listen yet.
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        let ended_by_itself = async {
            let mut ended = pin!(folder.ended());
            tokio::select! {
                biased;
                outcome = stopped => {
                    // It ends right after that.
                    ended.await?;
                    self.after_stop(outcome, folder).await
                }
                gone = &mut ended => {
                    gone?;
                    self.undo_if_due(folder).await
                }
            }
        };
        let force = |force| match (folder.holder(), force) {
            (Some(holder), Force::Terminate) => holder.terminate(),
            (Some(holder), Force::Kill) => holder.kill(),
            (None, _) => {}
        };
        with_force(ended_by_itself, &has_begun, force).await.unwrap_or_else(|| {
            let name = folder.target().unwrap_or_default();
            let message =
                format!("{name}: the bridge's process doesn't answer, and can't be ended");
            Err(Error::failed(message))
        })
    }

    /// What has become of a bridge that was asked to stop, and has ended.
    async fn after_stop(
        &self,
        outcome: Result<Option<DownOutcome>>,
        folder: &StateFolder,
    ) -> Result<DownOutcome> {
        let is_due = folder.undo_is_due();
        match outcome {
            // It was ended in the midst, or has never changed what one before it did.
            Ok(None | Some(DownOutcome::Undone { .. })) if is_due => self.undo_if_due(folder).await,
            Ok(outcome) => Ok(outcome.unwrap_or(DownOutcome::Undone { may_ask: false })),
            Err(error) if is_due => Err(say_what_stays(error, folder)),
            Err(error) => Err(error),
        }
    }

    /// Undoes what a bridge that was ended by force has left.
    async fn undo_if_due(&self, folder: &StateFolder) -> Result<DownOutcome> {
        match folder.target() {
            Some(target) if folder.undo_is_due() => {
                Box::pin(self.undo(&target.parse()?, folder)).await
            }
            Some(_) | None => Ok(DownOutcome::Undone { may_ask: false }),
        }
    }

    /// Undoes what a bridge that has ended left in its target.
    pub(crate) async fn undo(
        &self,
        address: &TargetAddress,
        folder: &StateFolder,
    ) -> Result<DownOutcome> {
        let target = match self.find_again(address, folder).await {
            Ok(target) => target,
            Err(error) if is_no_container(&error) && self.is_removed(folder).await => {
                folder.note_undone();
                folder.remove_control_socket();
                return Ok(DownOutcome::Removed(error.message));
            }
            Err(error) => {
                folder.note_undo_instead_of_end();
                return Ok(DownOutcome::Later(error.message));
            }
        };
        let Some(_lock) = folder.lock()? else { return self.down(folder).await };
        if self.root().folder(&target.key()) != *folder {
            // Another container has the name by now, and the one that was bridged is gone.
            folder.note_undone();
            folder.remove_control_socket();
            return Ok(DownOutcome::Undone { may_ask: false });
        }
        let kept = folder.settings_to_undo();
        if kept.is_some_and(|kept| kept.options.helper.is_some()) {
            folder.note_undone();
            folder.remove_control_socket();
            return Ok(DownOutcome::LeftByServer(Vec::new()));
        }
        let settings = self.settings(&target.address())?;
        let token = self.root().token(&target.key())?;
        let in_use = match LinkSetup::new(&target, &settings).with_token(&token).undo().await {
            Err(error) if error.means_away() => {
                folder.note_undo_instead_of_end();
                return Ok(DownOutcome::Later(error.message));
            }
            Err(error) => {
                folder.note_undo_instead_of_end();
                return Err(say_what_stays(error, folder));
            }
            Ok(in_use) => in_use,
        };
        folder.note_undone();
        folder.remove_control_socket();
        if in_use.is_empty() {
            Ok(DownOutcome::Undone { may_ask: false })
        } else {
            Ok(DownOutcome::InUse(in_use))
        }
    }

    /// Whether the engine doesn't have the container any more that a bridge was for.
    async fn is_removed(&self, folder: &StateFolder) -> bool {
        let noted = folder.target().and_then(|noted| noted.parse().ok());
        match noted {
            // Its name names no other engine, where it could be.
            Some(noted @ (TargetAddress::Docker(_) | TargetAddress::Podman(_))) => {
                Target::find_any(&noted, None).await.is_err_and(|error| is_no_container(&error))
            }
            Some(_) | None => false,
        }
    }

    /// Removes from a target whose bridge has ended what bridges leave there: the public keys and ownertrust
    /// that were imported, and the helper.
    pub(crate) async fn purge(
        &self,
        address: &TargetAddress,
        folder: &StateFolder,
    ) -> Result<Purged> {
        let target = self.find_again(address, folder).await?;
        let Some(_lock) = folder.lock()? else {
            return Err(Error::failed(format!("{address} was bridged again meanwhile")));
        };
        let settings = self.settings(&target.address())?;
        let token = self.root().token(&target.key())?;
        let removed = LinkSetup::new(&target, &settings).with_token(&token).purge().await?;
        folder.note_undone();
        folder.remove_control_socket();
        Ok(removed)
    }

    /// Finds the target of a bridge that has ended, for the user that the bridge was for.
    async fn find_again(&self, address: &TargetAddress, folder: &StateFolder) -> Result<Target> {
        let noted = folder.user();
        Target::find(address, self.user().or(noted.as_deref())).await
    }
}

/// Waits for the end of a bridge that was asked to stop, and uses force if it doesn't begin to end, or takes
/// too long. `None` if that has no effect either.
async fn with_force<T>(
    ended: impl Future<Output = T>,
    has_begun: &Cell<bool>,
    mut force: impl FnMut(Force),
) -> Option<T> {
    let mut ended = pin!(ended);
    for next in [Some(Force::Terminate), Some(Force::Kill), None] {
        let patience = async {
            tokio::time::sleep(ANSWER_TIME).await;
            if has_begun.get() {
                tokio::time::sleep(UNDO_TIME).await;
            }
        };
        tokio::select! {
            biased;
            ended = &mut ended => return Some(ended),
            () = patience => next.into_iter().for_each(&mut force),
        }
    }
    None
}

/// Whether an engine answers, and doesn't have the container.
fn is_no_container(error: &Error) -> bool {
    error.check == Some(Check::Target)
}

/// Says what an attempt to undo has left in a target.
fn say_what_stays(error: Error, folder: &StateFolder) -> Error {
    let Some(target) = folder.target() else { return error };
    let word = target.parse().map_or(target, |address: TargetAddress| address.as_word());
    error
        .hint(
            "what isn't undone stays there: sockets of the bridge, and its marked lines in gpg.conf and \
             in the files of ssh and git",
        )
        .hint(format!("when that is corrected: keybridge down {word}"))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// When which force is used to end a bridge that never ends.
    async fn used(has_begun: bool) -> Vec<(Force, Duration)> {
        let (start, mut used) = (Instant::now(), Vec::new());
        let note = |force| used.push((force, start.elapsed()));
        let ended = with_force(std::future::pending::<()>(), &Cell::new(has_begun), note).await;
        assert_eq!(ended, None);
        used
    }

    #[tokio::test(start_paused = true)]
    async fn a_bridge_that_hangs_never_outlives_ten_seconds() {
        let used = used(false).await;
        let [(Force::Terminate, asked), (Force::Kill, killed)] = used[..] else {
            panic!("{used:?}")
        };
        assert!(asked < killed && killed <= Duration::from_secs(10), "{used:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_force_is_used_while_a_bridge_has_time_to_undo() {
        let used = used(true).await;
        assert!(used[0].1 > UNDO_TIME, "{used:?}");
    }
}
