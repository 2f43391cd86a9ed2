//! `keybridge link`: what an editor starts for a window with a remote.

use std::path::PathBuf;

use clap::Args;

use crate::config::{ConfigFile, Options};
use crate::editor;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Serve the bridge of an editor's window, whose remote only the editor can reach
#[derive(Debug, Args)]
#[command(after_help = "JSON-RPC 2.0 over standard input and output, one object on each line.")]
pub(crate) struct Link {
    /// The target: vscode:AUTHORITY
    #[arg(long, value_name = "ADDRESS")]
    target: String,
    /// Lend at most what this file says at each moment (see `keybridge rpc --raise`)
    #[arg(long, value_name = "FILE")]
    ceiling: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Link {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        let TargetAddress::Editor(authority) = &address else {
            let message = format!("{address}: not the remote of an editor");
            return Err(Error::new(ErrorKind::Usage, message).hint("write vscode:AUTHORITY"));
        };
        let settings = config.settings(&address.to_string(), &self.options)?;
        Box::pin(editor::serve(authority, &settings, self.ceiling)).await
    }
}
