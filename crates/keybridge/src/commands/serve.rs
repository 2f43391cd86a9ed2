//! `keybridge serve TARGET`: what `up` starts in the background.

use clap::Args;

use crate::Result;
use crate::config::{ConfigFile, Options};
use crate::supervisor;
use crate::target::TargetAddress;

/// Be the bridge of a target; `up` starts this in the background
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The target
    target: String,
    #[command(flatten)]
    options: Options,
}

impl Serve {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        let settings = config.settings(&address.to_string(), &self.options)?;
        supervisor::serve::serve(&address, &settings).await
    }
}
