//! `keybridge run TARGET -- COMMAND`.

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::Args;

use super::env::ssh_socket;
use super::up::asker_for;
use crate::askpass::Asker;
use crate::config::{ConfigFile, Options};
use crate::output::{Report, note};
use crate::platform::replace_process;
use crate::supervisor::{BridgeManager, UpOutcome};
use crate::target::{Target, TargetAddress, TargetCommand};
use crate::{Error, ErrorKind, Result};

/// Run a command in the target with the agents available; starts a bridge if there is none
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The target
    target: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    options: Options,
}

impl Run {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        address.check_not_here("run")?;
        let asker = asker_for(std::slice::from_ref(&address), None)?;
        let manager = BridgeManager::new(self.options.clone())?
            .with_config(config.clone())
            .asking_at(asker.as_ref().map(Asker::socket));
        // Standard output belongs to the command.
        match manager.join(&address, &Report::silent()).await? {
            UpOutcome::Started(status) => note(&format!(
                "{address} is bridged now, and stays so ({}); keybridge down {} ends it",
                status.lent(),
                address.as_word()
            )),
            UpOutcome::AlreadyUp { kept, .. } => {
                let named = self.options.differing(&Options::default());
                let kept: Vec<_> = kept.into_iter().filter(|name| named.contains(name)).collect();
                if !kept.is_empty() {
                    let kept = kept.join(", ");
                    note(&format!("{address} keeps its {kept}; keybridge up changes that"));
                }
            }
        }
        drop(asker);
        let target = Target::find(&address, None).await?;
        let settings = config.settings(&target.address().to_string(), &self.options)?;
        let target = target.for_user(settings.options.user.as_deref())?;
        let mut command = TargetCommand::new(self.command);
        match ssh_socket(&manager, &address).await {
            Ok(socket) => command = command.env("SSH_AUTH_SOCK", socket),
            // The gpg lane needs nothing to be set.
            Err(error) if error.kind == ErrorKind::NoAgent => {}
            Err(error) => return Err(error),
        }
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let Some(mut program) = target.in_the_foreground(&command, terminal)? else {
            let code = target.run(&command).await?.relay().await?;
            std::process::exit(code.unwrap_or(1));
        };
        let error = replace_process(&mut program);
        let name = program.get_program().display();
        Err(Error::failed(name.to_string())
            .caused_by(error)
            .hint("keybridge run needs the engine's own program, or ssh"))
    }
}
