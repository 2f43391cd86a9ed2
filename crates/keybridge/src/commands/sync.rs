//! `keybridge sync TARGET...`.

use clap::Args;
use keybridge_proto::printable;

use super::targets;
use crate::Result;
use crate::config::Options;
use crate::output::{Report, show_all_but_last};
use crate::supervisor::{BridgeManager, Synced};
use crate::target::TargetAddress;

/// Send the public keys and ownertrust again
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// The targets
    targets: Vec<String>,
}

impl Sync {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let report = Report::new();
        let mut errors = Vec::new();
        for address in targets::all_named(&self.targets, &manager).await? {
            errors.extend(sync(&manager, &address, &report).await.err());
        }
        show_all_but_last(errors)
    }
}

async fn sync(manager: &BridgeManager, address: &TargetAddress, report: &Report) -> Result<()> {
    address.check_not_here("sync")?;
    let folder = manager.folder(address).await?;
    manager.status(address).await?;
    let sync = async {
        let Synced { new, updated, unchanged, warnings } = manager.sync(&folder).await?;
        let changes = format!("keys: {new} new, {updated} updated, {unchanged} unchanged");
        Ok((warnings, changes))
    };
    for warning in report.step(&address.to_string(), sync).await? {
        report.warn(&printable(&warning).to_string());
    }
    Ok(())
}
