//! `keybridge watch`.

use clap::Args;

use crate::config::{ConfigFile, Options};
use crate::output::{Report, print_line};
use crate::platform::Signals;
use crate::platform::System;
use crate::supervisor::BridgeManager;
use crate::supervisor::watch::watch;
use crate::{Error, ErrorKind, Result};

/// Bridge every container with a label, as containers start and stop, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The label that a container is bridged for
    #[arg(long, value_name = "NAME[=VALUE]", default_value = "keybridge=on")]
    label: String,
    /// Print a systemd user unit that runs this, and how to install it
    #[arg(long)]
    unit: bool,
    #[command(flatten)]
    options: Options,
}

impl Watch {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        if self.unit {
            return self.print_unit();
        }
        let report = Report::new();
        let mut signals = Signals::new()?;
        report.say(&format!("watching for containers with the label {}", self.label));
        let stopped = signals.received();
        let manager = BridgeManager::new(self.options.clone())?.with_config(config.clone());
        watch(&self.label, &manager, &report, stopped).await
    }

    fn print_unit(&self) -> Result<()> {
        if !System::here().is_linux {
            let message = "--unit prints a unit of systemd, which this system doesn't have";
            return Err(Error::new(ErrorKind::Usage, message)
                .hint("let launchd start `keybridge watch` when you log in"));
        }
        let program = std::env::current_exe().map_err(|error| {
            Error::failed("can't find the path of this program").caused_by(error)
        })?;
        let mut words = vec![quoted(&program.to_string_lossy()), "watch".to_owned()];
        words.push(quoted(&format!("--label={}", self.label)));
        words.extend(self.options.flags()?.iter().map(|flag| quoted(flag)));
        print_line(&UNIT.replace("COMMAND", &words.join(" ")));
        Ok(())
    }
}

/// The comments say how to install it, so the output can be kept as it is.
const UNIT: &str = "\
# keybridge watch --unit > ~/.config/systemd/user/keybridge-watch.service
# systemctl --user daemon-reload
# systemctl --user enable --now keybridge-watch
[Unit]
Description=keybridge: lends your agents to labelled containers

[Service]
ExecStart=COMMAND
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target";

/// A word as systemd takes it.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', r"\\").replace('"', "\\\"");
    let escaped = escaped.replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}
