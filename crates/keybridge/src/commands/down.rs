//! `keybridge down TARGET...`.

use clap::Args;

use super::named;
use crate::Result;
use crate::config::Options;
use crate::output::{Report, show_all_but_last};
use crate::supervisor::{BridgeManager, DownOutcome, state::StateFolder};
use crate::target::TargetAddress;

/// Stop a bridge, and undo what `up` changed in the target
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The targets
    targets: Vec<String>,
    /// Every target that is bridged, or whose bridge was killed
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
            for (folder, status) in manager.all().await {
                bridges.push((status.target, folder));
            }
            bridges.extend(manager.killed().map(|(address, folder)| (address.to_string(), folder)));
            if bridges.is_empty() {
                report.say("nothing is bridged");
            }
        } else {
            for address in named::targets(&self.targets, &manager).await? {
                match manager.folder(&address).await {
                    Ok(folder) => bridges.push((address.to_string(), folder)),
                    Err(error) => errors.push(error),
                }
            }
        }
        for (name, folder) in bridges {
            if let Err(error) = self.end(&manager, &name, &folder, &report).await {
                errors.push(error.context(&name));
            }
        }
        show_all_but_last(errors)
    }

    /// Ends one bridge, and removes what it leaves if that is asked for.
    async fn end(
        &self,
        manager: &BridgeManager,
        name: &str,
        folder: &StateFolder,
        report: &Report,
    ) -> Result<()> {
        let address = || name.parse::<TargetAddress>();
        if folder.is_alive() {
            let down = async { describe(manager.down(folder).await?) };
            report.step(name, down).await?;
        } else if folder.undo_is_due() {
            let undo = async { describe(manager.undo(&address()?, folder).await?) };
            report.step(&format!("{name}, whose bridge is gone"), undo).await?;
        } else if !self.purge {
            report.say(&format!("{name} is not bridged"));
        }
        if self.purge {
            let purge = async { Ok(((), manager.purge(&address()?, folder).await?)) };
            report.step(&format!("{name}, what was imported"), purge).await?;
        }
        Ok(())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "a step of a report is a result")]
fn describe(outcome: DownOutcome) -> Result<((), String)> {
    Ok((
        (),
        match outcome {
            DownOutcome::Undone => "undone".to_owned(),
            DownOutcome::Later(why) => {
                format!("ended; what it did there is undone at the next up or down ({why})")
            }
        },
    ))
}
