//! `keybridge up TARGET...`.

use clap::Args;
use keybridge_proto::{printable, printable_json};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::choose::Choices;
use crate::askpass::Asker;
use crate::config::{ConfigFile, Options};
use crate::doctor::name_check;
use crate::join::join_all;
use crate::output::{Report, SideBySide, print_line, show_all_but_last};
use crate::platform::{Signals, raise_descriptor_limit};
use crate::setup::{BridgeSetup, LiveBridge};
use crate::supervisor::{BridgeManager, BridgeStatus, Synced, UpOutcome, to_json};
use crate::target::{Questions, Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Start a bridge, which then runs in the background
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The targets: a container's name or id, `ssh://[USER@]HOST[:PORT]`, `exec:COMMAND`, `wsl://DISTRO`, or
    /// `local:DIR` for a second GnuPG home on this machine. With none, at a terminal, you choose from a list
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

/// A target that is bridged, and what is said of it.
struct Bridged {
    status: BridgeStatus,
    became: String,
    is_new: bool,
}

/// How many targets are set up at the same time: each needs a process, and an ssh server lets only some
/// log in at once.
const MOST_AT_ONCE: usize = 8;

impl Up {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let parse = |target: &String| target.parse::<TargetAddress>();
        let addresses = match self.targets.iter().map(parse).collect::<Result<Vec<_>>>() {
            Ok(named) if named.is_empty() => self.choose().await,
            named => named.map_err(|error| self.refused(error, None)),
        };
        let addresses = match addresses {
            Ok(chosen) if chosen.is_empty() => return Ok(()),
            addresses => addresses?,
        };
        let mut bridges = Vec::new();
        let result = self.set_up(&addresses, config, &mut bridges).await;
        if self.json && (result.is_err() || !self.foreground) {
            print_line(&to_json(&bridges, result.as_ref().err()));
        }
        result
    }

    /// What a person chooses; an error where nobody can be asked.
    async fn choose(&self) -> Result<Vec<TargetAddress>> {
        let manager =
            BridgeManager::new(Options::default()).map_err(|error| self.refused(error, None))?;
        let can_ask = Choices::can_ask() && !self.json;
        if can_ask {
            Choices::say_looking();
        }
        // Boxed: it is seldom needed, and large.
        let choices = Box::pin(Choices::find(&manager)).await;
        if can_ask {
            return choices.ask().await;
        }
        Err(self.refused(choices.not_named(), Some(choices.to_json())))
    }

    async fn set_up(
        &self,
        addresses: &[TargetAddress],
        config: &ConfigFile,
        bridges: &mut Vec<BridgeStatus>,
    ) -> Result<()> {
        match addresses {
            [address] if self.foreground => {
                let run = self.run_in_foreground(address, config).await;
                run.map_err(|error| name_check(error, address, self.options.user.as_deref()))
            }
            _ if self.foreground => {
                let message = "--foreground takes one target";
                Err(Error::new(ErrorKind::Usage, message))
            }
            _ => self.start(addresses, config, bridges).await,
        }
    }

    /// Adds the status of each bridge that is up. A target that fails doesn't keep the others from theirs.
    async fn start(
        &self,
        addresses: &[TargetAddress],
        config: &ConfigFile,
        bridges: &mut Vec<BridgeStatus>,
    ) -> Result<()> {
        let names = || addresses.iter().map(TargetAddress::to_string);
        let several = matches!(addresses, [_, _, ..]);
        let beside = (several && !self.json).then(|| SideBySide::new(names()));
        let asker = if self.json { None } else { asker_for(addresses, beside.clone())? };
        let manager = BridgeManager::new(self.options.clone())?
            .with_config(config.clone())
            .asking_at(asker.as_ref().map(Asker::socket));
        let turns = Semaphore::new(MOST_AT_ONCE);
        let results = join_all(addresses.iter().enumerate().map(async |(index, address)| {
            let _turn = turns.acquire().await;
            let report = match &beside {
                Some(beside) => beside.report(index),
                None => self.report(),
            };
            let started = self.start_one(&manager, address, &report).await;
            let started =
                started.map_err(|error| name_check(error, address, self.options.user.as_deref()));
            if let Some(beside) = &beside {
                beside.ended(index, started.as_ref().ok().map(|started| started.became.as_str()));
            }
            started
        }))
        .await;
        let (mut new, mut errors) = (Vec::new(), Vec::<Error>::new());
        for (address, result) in addresses.iter().zip(results) {
            match result {
                Ok(Bridged { status, became, is_new }) => {
                    if !several {
                        let word = address.as_word();
                        let end = format!("; keybridge down {word} ends it");
                        let end = if is_new { end.as_str() } else { "" };
                        self.report().say(&format!("{address} {became}{end}"));
                    }
                    if is_new {
                        new.push((address, status.target.clone()));
                    }
                    bridges.push(status);
                }
                // What is wrong for every target is told once.
                Err(error) if error.kind == ErrorKind::Usage && errors.contains(&error) => {}
                Err(error) => {
                    let is_named = error.message.contains(&address.to_string());
                    let is_told = is_named || !several || error.kind == ErrorKind::Usage;
                    errors.push(if is_told { error } else { error.context(address) });
                }
            }
        }
        self.say_how_git_signs(&new, config)?;
        show_all_but_last(errors)
    }

    /// Bridges a target, and tells what became of it.
    async fn start_one(
        &self,
        manager: &BridgeManager,
        address: &TargetAddress,
        report: &Report,
    ) -> Result<Bridged> {
        match manager.up(address, report).await? {
            UpOutcome::Started(status) => {
                Ok(Bridged { status, became: "is bridged".to_owned(), is_new: true })
            }
            UpOutcome::AlreadyUp { status, kept, changed } => {
                say_kept(&kept, address, report);
                let keys = send_keys(manager, address, &status, report).await?;
                let since = status.since.trim_end_matches('Z').replace('T', " ");
                let changed = match changed.join(", ") {
                    names if names.is_empty() => names,
                    names => format!("; changed: {names}"),
                };
                let became = format!("is bridged already, since {since} UTC{changed}{keys}");
                Ok(Bridged { status, became, is_new: false })
            }
        }
    }

    /// Says how git in new bridges' targets can be made to sign, where it doesn't.
    fn say_how_git_signs(
        &self,
        targets: &[(&TargetAddress, String)],
        config: &ConfigFile,
    ) -> Result<()> {
        let mut unsigned = Vec::new();
        for (address, target) in targets {
            if !config.settings(target, &self.options)?.git() {
                unsigned.push(address.as_word());
            }
        }
        let them = match unsigned.len() {
            0 => return Ok(()),
            1 => "the target",
            _ => "these targets",
        };
        let words = unsigned.join(" ");
        self.report().say(&format!(
            "git in {them} doesn't sign by itself; keybridge up --git {words} sets that up"
        ));
        Ok(())
    }

    fn report(&self) -> Report {
        if self.json { Report::silent() } else { Report::new() }
    }

    /// The error of a command that has done nothing, printed as JSON if that is wanted.
    fn refused(&self, error: Error, choices: Option<Value>) -> Error {
        if self.json {
            let mut object = json!({ "bridges": [], "error": error });
            let in_error = object.pointer_mut("/error").and_then(Value::as_object_mut);
            if let (Some(in_error), Some(choices)) = (in_error, choices) {
                in_error.insert("choices".to_owned(), choices);
            }
            print_line(&printable_json(&object.to_string()));
        }
        error
    }

    async fn run_in_foreground(&self, address: &TargetAddress, config: &ConfigFile) -> Result<()> {
        let report = &self.report();
        let target = Target::find(address, None).await?;
        let settings = config.settings(&target.address().to_string(), &self.options)?;
        let target = target.for_user(settings.options.user.as_deref())?;
        let asker = if self.json { None } else { asker_for(std::slice::from_ref(address), None)? };
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

/// Someone to ask what a login asks, if one of the targets may and this process has a terminal, where the
/// progress of several targets may be shown.
pub(super) fn asker_for(
    addresses: &[TargetAddress],
    beside: Option<SideBySide>,
) -> Result<Option<Asker>> {
    if addresses.iter().any(TargetAddress::may_ask) { Asker::open(beside) } else { Ok(None) }
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
