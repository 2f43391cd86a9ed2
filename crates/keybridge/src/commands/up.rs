//! `keybridge up TARGET`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::config::{ConfigFile, Options};
use crate::lend::{self, Lent};
use crate::report::Report;
use crate::signals::Signals;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Start bridging, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The target: local:DIR, a second GnuPG home on this machine
    target: String,
    /// Stay in the foreground until Ctrl-C, then undo everything
    #[arg(long)]
    foreground: bool,
    /// Print what was set up as JSON, when it works
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

impl Up {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let address: TargetAddress = self.target.parse()?;
        if !self.foreground {
            let message = "bridges in the background are not there yet";
            return Err(Error::new(ErrorKind::Usage, message).hint("add --foreground"));
        }
        let settings = config.settings(&address.to_string(), &self.options)?;
        let report = if self.json { Report::silent() } else { Report::new() };
        // Before anything is changed, so that no signal can come too early to be undone.
        let mut signals = Signals::new()?;
        let lent = {
            let mut lending = std::pin::pin!(lend::lend(&address, &settings, &report));
            tokio::select! {
                lent = &mut lending => lent?,
                () = signals.received() => {
                    // Not dropped half-way: the helper could not undo what it has done by then. A
                    // second signal doesn't wait.
                    tokio::select! {
                        lent = lending => if let Ok(lent) = lent { lent.stop().await? },
                        () = signals.received() => {}
                    }
                    return Err(Error::failed("interrupted"));
                }
            }
        };
        if self.json {
            println!("{}", as_json(&address, &lent));
        } else {
            report.say(&format!("{address} is bridged; Ctrl-C ends it and undoes every change"));
        }
        let ended = tokio::select! {
            end = lent.ended() => Some(end),
            () = signals.received() => None,
        };
        match ended {
            None => {
                let stop = async { lent.stop().await.map(|()| ((), String::new())) };
                report.step("undoing the changes in the target", stop).await
            }
            Some(why) => Err(Error::failed(format!("{address}: the bridge ended: {why}"))
                .hint("run keybridge up again; --log debug shows more")),
        }
    }
}

fn as_json(address: &TargetAddress, lent: &Lent) -> serde_json::Value {
    let ready = lent.ready();
    let socket: Option<PathBuf> = ready.gpg_socket.as_ref().map(PathBuf::from);
    json!({
        "target": address.to_string(),
        "state": "ready",
        "user": ready.user,
        "gnupg": ready.gnupg,
        "lanes": { "gpg": { "socket": socket } },
        "keys": lent.keys().map(|keys| json!({
            "new": keys.new,
            "updated": keys.updated,
            "unchanged": keys.unchanged,
            "ownertrust": keys.ownertrust,
        })),
        "warnings": ready.warnings,
        "version": env!("CARGO_PKG_VERSION"),
    })
}
