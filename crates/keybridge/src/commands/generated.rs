//! `keybridge completions SHELL` and `keybridge man`: what is generated from the description of the command
//! line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::print_line;
use crate::{Error, Result};

/// Write shell completions to standard output
#[derive(Debug, Args)]
#[command(after_help = "For bash: keybridge completions bash > \
                        ~/.local/share/bash-completion/completions/keybridge")]
pub(crate) struct Completions {
    /// The shell that they are for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "keybridge", &mut script);
        print_line(&String::from_utf8_lossy(&script).trim_end());
    }
}

/// Write the manual pages
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder to write them to, created if need be; without it the main page goes to standard output
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let command = Cli::command();
        if let Some(folder) = &self.folder {
            return std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(command, folder))
                .map_err(|error| {
                    let message = format!("can't write the manual pages to {}", folder.display());
                    Error::failed(message).caused_by(error)
                });
        }
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        print_line(&String::from_utf8_lossy(&page).trim_end());
        rendered.map_err(|error| Error::failed(error.to_string()))
    }
}
