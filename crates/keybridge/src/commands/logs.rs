//! `keybridge logs TARGET`.

use std::io::{Read, Seek, Write};
use std::time::Duration;

use clap::Args;

use crate::config::Options;
use crate::supervisor::BridgeManager;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Show what a bridge did
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The target
    target: String,
    /// Go on showing what it does, until it ends
    #[arg(short, long)]
    follow: bool,
}

/// How often a log that is followed is looked at: a person reads it.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Logs {
    pub(crate) async fn run(self) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        let folder = BridgeManager::new(Options::default())?.folder(&address).await?;
        let path = folder.log();
        let mut log = std::fs::File::open(&path).map_err(|error| {
            Error::new(ErrorKind::NoTarget, format!("{address} has no log: {error}"))
                .hint(format!("it has one once it was bridged: keybridge up {address}"))
        })?;
        loop {
            // Asked first: what is written after that is shown in the next turn.
            let alive = folder.is_alive();
            let mut text = Vec::new();
            log.read_to_end(&mut text).map_err(|error| Error::failed(error.to_string()))?;
            if std::io::stdout().write_all(&text).is_err() || !self.follow || !alive {
                return Ok(());
            }
            // A new bridge begins a new log.
            let shown = log.stream_position().unwrap_or(0);
            if std::fs::metadata(&path).is_ok_and(|now| now.len() < shown)
                && let Ok(new) = std::fs::File::open(&path)
            {
                log = new;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
