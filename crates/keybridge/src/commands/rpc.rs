//! `keybridge rpc`.

use clap::Args;

use crate::config::{ConfigFile, Options};
use crate::gnupg::Gnupg;
use crate::interface::{CommandInterface, rpc};
use crate::{Error, Result};

/// Serve the command interface over standard input and output, for editors
#[derive(Debug, Args)]
pub(crate) struct Rpc {
    #[command(flatten)]
    options: Options,
}

impl Rpc {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let settings = config.settings("rpc", &self.options)?;
        let gnupg = Gnupg::new(settings.gnupg_home.clone());
        let _ = (gnupg, settings, Error::failed(""));
        todo!()
    }
}
