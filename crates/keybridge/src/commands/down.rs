//! `keybridge down TARGET...`.

use clap::Args;

use crate::Result;
use crate::config::Options;
use crate::output::{Report, show_all_but_last};
use crate::supervisor::{BridgeManager, DownOutcome};
use crate::target::TargetAddress;

/// Stop bridging, and undo what `up` changed in the target
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The targets
    #[arg(required_unless_present = "all")]
    targets: Vec<String>,
    /// Every target that is bridged, or whose bridge was killed
    #[arg(long, conflicts_with = "targets")]
    all: bool,
}

impl Down {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let report = Report::new();
        let mut bridges = Vec::new();
        let mut ended = Vec::new();
        if self.all {
            for (folder, status) in manager.all().await {
                bridges.push((status.target, folder));
            }
            ended = manager.killed();
            if bridges.is_empty() && ended.is_empty() {
                report.say("nothing is bridged");
            }
        } else {
            for target in &self.targets {
                let address: TargetAddress = target.parse()?;
                let folder = manager.folder(&address).await?;
                if folder.is_alive() {
                    bridges.push((address.to_string(), folder));
                } else if folder.undo_is_due() {
                    ended.push((address, folder));
                } else {
                    report.say(&format!("{address} is not bridged"));
                }
            }
        }
        let mut errors = Vec::new();
        for (address, folder) in ended {
            let undo = async { describe(manager.undo(&address, &folder).await?) };
            let name = format!("{address}, whose bridge is gone");
            if let Err(error) = report.step(&name, undo).await {
                errors.push(error.context(&address));
            }
        }
        for (name, folder) in bridges {
            let down = async { describe(manager.down(&folder).await?) };
            if let Err(error) = report.step(&name, down).await {
                errors.push(error.context(&name));
            }
        }
        show_all_but_last(errors)
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
