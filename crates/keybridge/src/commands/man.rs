//! `keybridge man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::{Error, Result};

/// Write the manual pages
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder to write them to; without it the main page goes to standard output
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let command = Cli::command();
        let written = match &self.folder {
            Some(folder) => clap_mangen::generate_to(command, folder),
            None => clap_mangen::Man::new(command).render(&mut std::io::stdout()),
        };
        let place = self.folder.unwrap_or_default();
        written.map_err(|error| Error::failed(format!("{}: {error}", place.display())))
    }
}
