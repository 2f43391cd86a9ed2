//! `keybridge completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::print_line;

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
