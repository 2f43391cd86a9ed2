//! `keybridge sync TARGET...`.

use clap::Args;

use crate::Result;
use crate::config::Options;
use crate::report::Report;
use crate::supervisor::BridgeManager;
use crate::target::TargetAddress;

/// Send the public keys and ownertrust again
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// The targets
    #[arg(required = true)]
    targets: Vec<String>,
}

impl Sync {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let report = Report::new();
        for target in &self.targets {
            let address: TargetAddress = target.parse()?;
            let folder = manager.folder(&address).await?;
            manager.status(&address).await?;
            let sync = async {
                let (new, updated, unchanged) = manager.sync(&folder).await?;
                Ok(((), format!("keys: {new} new, {updated} updated, {unchanged} unchanged")))
            };
            report.step(&address.to_string(), sync).await?;
        }
        Ok(())
    }
}
