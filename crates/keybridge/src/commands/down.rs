//! `keybridge down TARGET...`.

use clap::Args;

use super::targets;
use crate::Result;
use crate::config::Options;
use crate::join::join_all;
use crate::output::{Event, Report, SideBySide, show_all_but_last};
use crate::supervisor::{BridgeManager, DownOutcome, state::StateFolder};
use crate::target::TargetAddress;

/// Stop a bridge, and undo what `up` changed in the target
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The targets
    targets: Vec<String>,
    /// Every target that is bridged, or isn't undone yet
    #[arg(long, conflicts_with = "targets")]
    all: bool,
    /// Also remove the public keys and ownertrust that keybridge imported, and its helper program; for
    /// targets that aren't bridged any more, too
    #[arg(long)]
    purge: bool,
    /// The user that the target was bridged for, if it isn't bridged any more (default: as at the last
    /// `up`)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl Down {
    pub(crate) async fn run(self) -> Result<()> {
        let options = Options { user: self.user.clone(), ..Options::default() };
        let manager = BridgeManager::new(options)?;
        let report = Report::new();
        let mut bridges = Vec::new();
        let mut errors = Vec::new();
        if self.all {
            // Without their status, which takes its time with one that hangs.
            bridges.extend(manager.alive().filter_map(|folder| Some((folder.target()?, folder))));
            let not_undone = manager.not_undone();
            bridges.extend(not_undone.map(|(address, folder)| (address.to_string(), folder)));
            if bridges.is_empty() {
                report.say("nothing is bridged");
            }
        } else {
            for address in targets::all_named(&self.targets, &manager).await? {
                match manager.folder(&address).await {
                    Ok(folder) => bridges.push((address.to_string(), folder)),
                    Err(error) => errors.push(error),
                }
            }
        }
        let several = matches!(bridges.as_slice(), [_, _, ..]);
        let beside = several.then(|| SideBySide::new(bridges.iter().map(|(name, _)| name.clone())));
        let ended = join_all(bridges.iter().enumerate().map(async |(index, (name, folder))| {
            let end = Box::pin(self.end(&manager, name, folder));
            let ended = match &beside {
                None => report.step(name, async { Ok(((), end.await?)) }).await,
                Some(beside) => {
                    beside.report(index).show(&Event::Begun { doing: "ending".to_owned() });
                    let became = end.await;
                    beside.ended(index, became.as_ref().ok().map(String::as_str));
                    became.map(|_| ())
                }
            };
            ended.map_err(|error| error.context(name))
        }));
        errors.extend(ended.await.into_iter().filter_map(Result::err));
        show_all_but_last(errors)
    }

    /// Ends one bridge, and removes what it leaves if that is asked for. Tells what became of it.
    async fn end(
        &self,
        manager: &BridgeManager,
        name: &str,
        folder: &StateFolder,
    ) -> Result<String> {
        let address = || name.parse::<TargetAddress>();
        let became = if folder.is_alive() {
            describe(manager.down(folder).await?)
        } else if folder.undo_is_due() {
            let outcome = manager.undo(&address()?, folder).await?;
            format!("its bridge is gone; {}", describe(outcome))
        } else {
            "is not bridged".to_owned()
        };
        if !self.purge {
            return Ok(became);
        }
        let removed = manager.purge(&address()?, folder).await?;
        Ok(format!("{became}; {removed}"))
    }
}

/// What became of a target, for people.
pub(super) fn describe(outcome: DownOutcome) -> String {
    match outcome {
        DownOutcome::Undone { may_ask: false } => "undone".to_owned(),
        DownOutcome::Undone { may_ask: true } => {
            "undone; dialogs may still be open for what the target has asked for: gpg-agent before 2.4 and \
             OpenSSH's agent show them until they are closed"
                .to_owned()
        }
        DownOutcome::InUse(by) => format!("ended, and not undone everywhere: {}", by.join("; ")),
        DownOutcome::Removed(why) => format!("nothing is left to undo ({why})"),
        DownOutcome::LeftByServer(left) if left.is_empty() => {
            "ended; its version 1 server undoes what it did there by itself".to_owned()
        }
        DownOutcome::LeftByServer(left) => {
            format!("ended; its version 1 server has left there: {}", left.join(", "))
        }
        DownOutcome::Later(why) => {
            format!("ended; what it did there is undone at the next up or down ({why})")
        }
    }
}
