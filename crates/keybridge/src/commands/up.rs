//! `keybridge up TARGET...`.

use clap::Args;
use keybridge_proto::{printable, printable_json};
use serde_json::json;

use crate::config::{ConfigFile, Options};
use crate::limits::fit_descriptors;
use crate::report::{Report, print_line};
use crate::setup::{BridgeSetup, LiveBridge};
use crate::signals::Signals;
use crate::supervisor::{BridgeManager, BridgeStatus, Ensured, to_json};
use crate::target::{Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Start bridging; returns when it works, and goes on in the background
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The targets: containers, by name or id, or local:DIR, a second GnuPG home on this machine
    #[arg(required = true)]
    targets: Vec<String>,
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
        let mut bridges = Vec::new();
        let result = self.set_up(config, &mut bridges).await;
        if self.json && (result.is_err() || !self.foreground) {
            print_line(&to_json(&bridges, result.as_ref().err()));
        }
        result
    }

    async fn set_up(&self, config: &ConfigFile, bridges: &mut Vec<BridgeStatus>) -> Result<()> {
        let parse = |target: &String| target.parse::<TargetAddress>();
        let addresses: Vec<TargetAddress> =
            self.targets.iter().map(parse).collect::<Result<_>>()?;
        let report = if self.json { Report::silent() } else { Report::new() };
        match addresses.as_slice() {
            [address] if self.foreground => self.stay(address, config, &report).await,
            _ if self.foreground => {
                let message = "--foreground takes one target";
                Err(Error::new(ErrorKind::Usage, message))
            }
            _ => self.start(&addresses, config, &report, bridges).await,
        }
    }

    /// Adds the status of each bridge that is up.
    async fn start(
        &self,
        addresses: &[TargetAddress],
        config: &ConfigFile,
        report: &Report,
        bridges: &mut Vec<BridgeStatus>,
    ) -> Result<()> {
        let manager = BridgeManager::new(self.options.clone())?.with_config(config.clone());
        for address in addresses {
            let Ensured { status, was_there } = manager.up(address, report).await?;
            let name = address.to_string();
            if was_there {
                self.check_user(&status, &name)?;
                // What was narrowed once stays so, and what a file says now hasn't been taken over.
                if status.lending != config.settings(&status.target, &self.options)?.lending {
                    report.warn(&format!(
                        "{name} lends the keys that it was told to lend before; --lend, --keys and \
                         --uses change that, and so do down and up"
                    ));
                }
                let folder = manager.folder(address).await?;
                let (new, updated) = match status.lanes.gpg {
                    Some(_) => {
                        manager.sync(&folder).await.map(|(new, updated, _)| (new, updated))?
                    }
                    None => (0, 0),
                };
                let keys = match (new, updated) {
                    (0, 0) => String::new(),
                    _ => format!("; keys: {new} new, {updated} updated"),
                };
                let since = status.since.trim_end_matches('Z').replace('T', " ");
                report.say(&format!("{name} is bridged already, since {since} UTC{keys}"));
            } else {
                report.say(&format!("{name} is bridged; keybridge down {name} ends it"));
                if !config.settings(&status.target, &self.options)?.git {
                    report.say(&format!(
                        "git there signs when told so; keybridge up --git {name} sets that up"
                    ));
                }
            }
            bridges.push(status);
        }
        Ok(())
    }

    /// A bridge is for one user; it can't be for another one too.
    fn check_user(&self, status: &BridgeStatus, name: &str) -> Result<()> {
        let Some(wanted) = &self.options.user else { return Ok(()) };
        let shown = &status.user;
        if shown.split(' ').next() == Some(wanted) || shown.contains(&format!("uid {wanted})")) {
            return Ok(());
        }
        Err(Error::failed(format!("{name} is bridged for {}", printable(shown)))
            .hint(format!("keybridge down {name}, then up again for the other user")))
    }

    async fn stay(
        &self,
        address: &TargetAddress,
        config: &ConfigFile,
        report: &Report,
    ) -> Result<()> {
        let target = Target::find(address, None).await?;
        let settings = config.settings(&target.address().to_string(), &self.options)?;
        let target = target.for_user(settings.user.as_deref())?;
        fit_descriptors(settings.max_sessions);
        // Before anything is changed, so that no signal can come too early to be undone.
        let mut signals = Signals::new()?;
        let setup = BridgeSetup::new(&target, &settings);
        let live = setup.run_until(async || signals.received().await, report).await?;
        if self.json {
            print_line(&printable_json(&as_json(address, &live).to_string()));
        } else {
            report.say(&format!("{address} is bridged; Ctrl-C ends it and undoes every change"));
        }
        let ended = tokio::select! {
            end = live.ended() => Some(end),
            () = signals.received() => None,
        };
        match ended {
            None => {
                let stop = async {
                    // A second signal doesn't wait for the target.
                    tokio::select! {
                        stopped = live.stop() => stopped.map(|()| ((), String::new())),
                        () = signals.received() => Err(Error::failed("interrupted")
                            .hint("the next keybridge up there undoes what is left")),
                    }
                };
                report.step("undoing the changes in the target", stop).await
            }
            Some(why) => {
                live.settle().await;
                Err(Error::from(why)
                    .context(format!("{address}: the bridge ended"))
                    .hint("run keybridge up again; --log debug shows more"))
            }
        }
    }
}

fn as_json(address: &TargetAddress, live: &LiveBridge) -> serde_json::Value {
    let ready = live.ready();
    let lanes: serde_json::Map<_, _> = [("gpg", &ready.gpg_socket), ("ssh", &ready.ssh_socket)]
        .into_iter()
        .filter_map(|(lane, socket)| Some((lane.to_owned(), json!({ "socket": socket.as_ref()? }))))
        .collect();
    json!({
        "target": address.to_string(),
        "state": "ready",
        "user": ready.user,
        "gnupg": ready.gnupg,
        "lanes": lanes,
        "keys": live.keys().map(|keys| json!({
            "new": keys.new,
            "updated": keys.updated,
            "unchanged": keys.unchanged,
            "ownertrust": keys.ownertrust,
        })),
        "warnings": ready.warnings,
        "version": env!("CARGO_PKG_VERSION"),
    })
}
