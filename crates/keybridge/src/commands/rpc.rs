//! `keybridge rpc`.

use clap::Args;

use crate::Result;
use crate::agent::{AgentDialer, GpgAgent};
use crate::config::{ConfigFile, Options};
use crate::interface::{self, CommandInterface};
use crate::keyring::Keyring;
use crate::platform::raise_descriptor_limit;

/// Serve the command interface over standard input and output, for editors
#[derive(Debug, Args)]
#[command(after_help = "JSON-RPC 2.0, one object on each line, parameters by name: connectAgent, \
                        sendCommands, disconnectAgent, exportPublicKeys, checkVersion.")]
pub(crate) struct Rpc {
    /// The target that the calls are for, whose settings count: vscode:AUTHORITY
    #[arg(long, value_name = "ADDRESS", default_value = "rpc")]
    target: String,
    #[command(flatten)]
    options: Options,
}

impl Rpc {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let settings = config.settings(&self.target, &self.options)?;
        raise_descriptor_limit(settings.max_sessions);
        let gnupg = settings.gnupg();
        let dialer = AgentDialer::find(gnupg.clone(), settings.policy.socket).await?;
        let (keyring, choice) = Keyring::open(gnupg.clone(), settings.lending).await?;
        for warning in &choice.warnings {
            tracing::warn!("{warning}");
        }
        let keys = keyring.public_keys().await;
        let interface = CommandInterface::new(
            gnupg,
            GpgAgent::new(dialer, keyring),
            interface::Settings {
                policy: settings.policy,
                limits: settings.limits,
                max_sessions: settings.max_sessions,
                keys,
            },
        );
        interface::rpc::serve(interface, tokio::io::stdin(), tokio::io::stdout()).await
    }
}
