//! `keybridge up TARGET...`.

use clap::Args;
use keybridge_proto::{printable, printable_json};
use serde_json::json;

use crate::askpass::Asker;
use crate::config::{ConfigFile, Options};
use crate::limits::raise_descriptor_limit;
use crate::output::{Report, print_line, show_all_but_last};
use crate::setup::{BridgeSetup, LiveBridge};
use crate::signals::Signals;
use crate::supervisor::{BridgeManager, BridgeStatus, Synced, UpOutcome, to_json};
use crate::target::{Questions, Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Start a bridge, which then runs in the background
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The targets: a container's name or id, `ssh://[USER@]HOST[:PORT]`, `exec:COMMAND`, `wsl://DISTRO`, or
    /// `local:DIR` for a second GnuPG home on this machine
    #[arg(required = true)]
    targets: Vec<String>,
    /// Stay in the foreground until Ctrl-C, then undo everything
    #[arg(long)]
    foreground: bool,
    /// Print what was set up, or what failed, as JSON
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
            [address] if self.foreground => self.run_in_foreground(address, config, &report).await,
            _ if self.foreground => {
                let message = "--foreground takes one target";
                Err(Error::new(ErrorKind::Usage, message))
            }
            _ => self.start(&addresses, config, &report, bridges).await,
        }
    }

    /// Adds the status of each bridge that is up. A target that fails doesn't keep the others from theirs.
    async fn start(
        &self,
        addresses: &[TargetAddress],
        config: &ConfigFile,
        report: &Report,
        bridges: &mut Vec<BridgeStatus>,
    ) -> Result<()> {
        let asker = if self.json { None } else { asker_for(addresses)? };
        let manager = BridgeManager::new(self.options.clone())?
            .with_config(config.clone())
            .asking_at(asker.as_ref().map(Asker::socket));
        let mut errors = Vec::new();
        for address in addresses {
            match self.start_one(&manager, address, config, report).await {
                Ok(status) => bridges.push(status),
                Err(error) => {
                    let is_named = error.message.contains(&address.to_string());
                    let ends_all = error.kind == ErrorKind::Usage;
                    errors.push(match addresses {
                        [_, _, ..] if !is_named && !ends_all => error.context(address),
                        _ => error,
                    });
                    // The other targets would get the same answer.
                    if ends_all {
                        break;
                    }
                }
            }
        }
        show_all_but_last(errors)
    }

    async fn start_one(
        &self,
        manager: &BridgeManager,
        address: &TargetAddress,
        config: &ConfigFile,
        report: &Report,
    ) -> Result<BridgeStatus> {
        match manager.up(address, report).await? {
            UpOutcome::Started(status) => {
                self.say_started(&status, address, config, report)?;
                Ok(status)
            }
            UpOutcome::AlreadyUp { status, kept, changed } => {
                say_kept(&kept, address, report);
                let keys = send_keys(manager, address, &status, report).await?;
                let since = status.since.trim_end_matches('Z').replace('T', " ");
                let changed = match changed.join(", ") {
                    names if names.is_empty() => names,
                    names => format!("; changed: {names}"),
                };
                report.say(&format!(
                    "{address} is bridged already, since {since} UTC{changed}{keys}"
                ));
                Ok(status)
            }
        }
    }

    fn say_started(
        &self,
        status: &BridgeStatus,
        address: &TargetAddress,
        config: &ConfigFile,
        report: &Report,
    ) -> Result<()> {
        let word = address.as_word();
        report.say(&format!("{address} is bridged; keybridge down {word} ends it"));
        if !config.settings(&status.target, &self.options)?.git() {
            report.say(&format!(
                "git in the target doesn't sign by itself; keybridge up --git {word} sets that up"
            ));
        }
        Ok(())
    }

    async fn run_in_foreground(
        &self,
        address: &TargetAddress,
        config: &ConfigFile,
        report: &Report,
    ) -> Result<()> {
        let target = Target::find(address, None).await?;
        let settings = config.settings(&target.address().to_string(), &self.options)?;
        let target = target.for_user(settings.options.user.as_deref())?;
        let asker = if self.json { None } else { asker_for(std::slice::from_ref(address))? };
        let target = match &asker {
            Some(asker) => target.asking(Questions::AskedAt(asker.socket())),
            None => target,
        };
        raise_descriptor_limit(settings.max_sessions);
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
                            .hint(format!("keybridge up {address} undoes what is left"))),
                    }
                };
                report.step("undoing the changes in the target", stop).await
            }
            Some(why) => {
                live.helper_ended().await;
                Err(Error::from(why)
                    .context(format!("{address}: the bridge ended"))
                    .hint("run keybridge up again; --log debug shows more"))
            }
        }
    }
}

/// Someone to ask what a login asks, if one of the targets may and this process has a terminal.
pub(super) fn asker_for(addresses: &[TargetAddress]) -> Result<Option<Asker>> {
    if addresses.iter().any(TargetAddress::may_ask) { Asker::open() } else { Ok(None) }
}

/// Says which settings a bridge that was up has kept, though a new one would have others: what it lends
/// must not change by a file, or by the absence of a flag.
fn say_kept(kept: &[String], address: &TargetAddress, report: &Report) {
    if !kept.is_empty() {
        let names = kept.join(", ");
        report.warn(&format!(
            "{address} keeps what was set before for {names}: a bridge that is up changes only what \
             the command line or the environment names; keybridge down {address}, then up, starts anew"
        ));
    }
}

/// Sends the public keys to a bridge that was up; says what they changed.
async fn send_keys(
    manager: &BridgeManager,
    address: &TargetAddress,
    status: &BridgeStatus,
    report: &Report,
) -> Result<String> {
    if status.lanes.gpg.is_none() {
        return Ok(String::new());
    }
    let folder = manager.folder(address).await?;
    let Synced { new, updated, warnings, .. } = manager.sync(&folder).await?;
    for warning in warnings {
        report.warn(&printable(&warning).to_string());
    }
    Ok(match (new, updated) {
        (0, 0) => String::new(),
        (new, updated) => format!("; keys: {new} new, {updated} updated"),
    })
}

fn as_json(address: &TargetAddress, live: &LiveBridge) -> serde_json::Value {
    let ready = live.ready();
    let lanes: serde_json::Map<_, _> = ready
        .sockets
        .iter()
        .filter_map(|(lane, socket)| {
            Some((lane.to_string(), json!({ "socket": socket.as_ref()? })))
        })
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
