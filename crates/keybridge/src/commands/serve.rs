//! `keybridge serve TARGET`: what `up` and `watch` start in the background.

use clap::Args;

use crate::Result;
use crate::config::ConfigFile;
use crate::supervisor::serve::{StartedBy, serve};
use crate::target::TargetAddress;

/// Serve the bridge of a target; `up` and `watch` start this in the background
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The target
    target: String,
    /// Try again when the first link fails, and end with `watch`, which starts this
    #[arg(long)]
    watched: bool,
}

impl Serve {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        let started_by = if self.watched { StartedBy::Watch } else { StartedBy::Up };
        serve(&address, config, started_by).await
    }
}
