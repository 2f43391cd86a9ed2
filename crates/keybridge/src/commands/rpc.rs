//! `keybridge rpc`.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use keybridge_proto::{Lane, OperationSet};

use crate::Result;
use crate::agent::{AgentDialer, GpgAgent};
use crate::config::{ConfigFile, Options};
use crate::editor::{ceiling_in, raise_ceiling};
use crate::interface::{self, CommandInterface};
use crate::keyring::Keyring;
use crate::platform::raise_descriptor_limit;
use crate::record::{BridgeRecorder, RecordMode};
use crate::supervisor::state::StateRoot;

/// Serve the command interface over standard input and output, for editors
#[derive(Debug, Args)]
#[command(after_help = "JSON-RPC 2.0, one object on each line, parameters by name: connectAgent, \
                        sendCommands, disconnectAgent, exportPublicKeys, checkVersion.")]
pub(crate) struct Rpc {
    /// The target that the calls are for, whose settings count: vscode:AUTHORITY
    #[arg(long, value_name = "ADDRESS", default_value = "rpc")]
    target: String,
    /// Lend at most what this file says at each moment, and nothing without it
    #[arg(long, value_name = "FILE")]
    ceiling: Option<PathBuf>,
    /// Serve nothing: write to that file what can be lent now, for a person who has agreed to it
    #[arg(long, requires = "ceiling")]
    raise: bool,
    #[command(flatten)]
    options: Options,
}

impl Rpc {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let settings = config.settings(&self.target, &self.options)?;
        if let (true, Some(file)) = (self.raise, &self.ceiling) {
            return raise_ceiling(&settings, file).await;
        }
        raise_descriptor_limit(settings.max_sessions);
        let (gnupg, rules) = (settings.gnupg(), settings.rules(&[]));
        let dialer = AgentDialer::find(gnupg.clone(), settings.policy.socket).await?;
        let ceiling = ceiling_in(self.ceiling);
        // Callers use what the gpg lane lends.
        let mut lending = settings.lending;
        if !settings.lanes.contains(&Lane::Gpg) {
            lending.uses = Some(OperationSet::NONE);
        }
        let (keyring, choice) = Keyring::open(gnupg.clone(), lending, &ceiling).await?;
        // Of new keys the keyring warns itself.
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
                rules,
            },
        );
        let id = StateRoot::id(&self.target);
        let recorder = Rc::new(BridgeRecorder::new(self.target, id, settings.record));
        let is_required = settings.record == RecordMode::Required;
        interface.record_with(Rc::clone(&recorder) as Rc<_>, is_required);
        let served =
            interface::rpc::serve(interface, tokio::io::stdin(), tokio::io::stdout()).await;
        recorder.end();
        served
    }
}
