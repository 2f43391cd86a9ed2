//! `keybridge down TARGET...`.

use clap::Args;

use crate::config::Options;
use crate::output::Report;
use crate::supervisor::{BridgeManager, DownOutcome};
use crate::target::TargetAddress;
use crate::{Error, Result};

/// Stop bridging, and undo what `up` changed in the target
#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The targets
    #[arg(required_unless_present = "all")]
    targets: Vec<String>,
    /// Every target that is bridged
    #[arg(long, conflicts_with = "targets")]
    all: bool,
}

impl Down {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let report = Report::new();
        let mut bridges = Vec::new();
        if self.all {
            for (folder, status) in manager.all().await {
                bridges.push((status.target, folder));
            }
            if bridges.is_empty() {
                report.say("nothing is bridged");
            }
        } else {
            for target in &self.targets {
                let address: TargetAddress = target.parse()?;
                let folder = manager.folder(&address).await?;
                if folder.is_alive() {
                    bridges.push((address.to_string(), folder));
                } else if folder.undo_is_due() {
                    let undo = async { describe(manager.undo(&address, &folder).await?) };
                    report.step(&format!("{address}, whose bridge is gone"), undo).await?;
                } else {
                    report.say(&format!("{address} is not bridged"));
                }
            }
        }
        let mut first: Option<Error> = None;
        for (name, folder) in bridges {
            let down = async { describe(manager.down(&folder).await?) };
            if let Err(error) = report.step(&name, down).await {
                first.get_or_insert(error.context(&name));
            }
        }
        first.map_or(Ok(()), Err)
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
