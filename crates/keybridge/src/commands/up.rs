//! `keybridge up TARGET...`.

use std::cell::RefCell;
use std::rc::Rc;

use clap::Args;
use keybridge_proto::{printable, printable_json};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::down::describe;
use super::targets::Choices;
use crate::askpass::Asker;
use crate::config::{ConfigFile, Invocation, Options};
use crate::doctor::{IN_A_FIX, name_check};
use crate::join::join_all;
use crate::output::{Event, Report, SideBySide, print_line, show_all_but_last};
use crate::setup::Link;
use crate::supervisor::{
    BridgeManager, BridgeStatus, DownOutcome, Synced, UpOutcome, run_in_foreground, to_json,
};
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Start a bridge, which then runs in the background
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The targets: a container's name or id, `ssh://[USER@]HOST[:PORT]`, `exec:COMMAND`, `wsl://DISTRO`, or
    /// `local:DIR` for a second GnuPG home on the host. With none, at a terminal, you choose from a list
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

/// A target that is bridged, and the line that says so.
struct Bridged {
    told: Told,
    became: String,
    is_new: bool,
}

/// A bridge, with all that a person is told of it: what `--json` prints.
#[derive(Debug, Serialize)]
struct Told {
    #[serde(flatten)]
    status: BridgeStatus,
    #[serde(flatten)]
    notes: Notes,
}

/// What a person is told besides the status.
#[derive(Debug, Clone, Default, Serialize)]
struct Notes {
    changed: Vec<String>,
    warnings: Vec<String>,
}

impl Notes {
    /// A report that collects them, and shows nothing.
    fn collect() -> (Report, Rc<RefCell<Self>>) {
        let notes = Rc::<RefCell<Self>>::default();
        let collected = Rc::clone(&notes);
        let report = Report::to(move |event| match event {
            Event::Changed { name } => collected.borrow_mut().changed.push(name.clone()),
            Event::Warning { text } => collected.borrow_mut().warnings.push(text.clone()),
            Event::Begun { .. }
            | Event::Done { .. }
            | Event::Failed { .. }
            | Event::Said { .. } => {}
        });
        (report, notes)
    }
}

/// How many targets are set up at the same time: each needs a process, and an ssh server lets only some
/// log in at once.
const MOST_AT_ONCE: usize = 8;

impl Up {
    /// Whether the bridge is in this process.
    pub(crate) const fn is_in_foreground(&self) -> bool {
        self.foreground
    }

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
        bridges: &mut Vec<Told>,
    ) -> Result<()> {
        match addresses {
            [address] if self.foreground => {
                let run = self.serve_in_foreground(address, config).await;
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
        bridges: &mut Vec<Told>,
    ) -> Result<()> {
        let names = || addresses.iter().map(TargetAddress::to_string);
        let several = matches!(addresses, [_, _, ..]);
        let beside = (several && !self.json).then(|| SideBySide::new(names()));
        let asker = if self.json { None } else { asker_for(addresses, beside.clone())? };
        let manager = BridgeManager::new(self.options.clone())?
            .with_config(config.clone())
            .asking_at(asker.as_ref().map(Asker::socket))
            .raising(is_typed());
        let turns = Semaphore::new(MOST_AT_ONCE);
        let results = join_all(addresses.iter().enumerate().map(async |(index, address)| {
            let _turn = turns.acquire().await;
            let (collecting, notes) = Notes::collect();
            let report = match &beside {
                Some(beside) => beside.report(index),
                None if self.json => collecting,
                None => self.report(),
            };
            let started = self.start_one(&manager, address, &report).await;
            let mut started =
                started.map_err(|error| name_check(error, address, self.options.user.as_deref()));
            if let Ok(Bridged { told, .. }) = &mut started {
                let Notes { changed, warnings } = notes.take();
                told.notes.changed.extend(changed);
                told.notes.warnings.extend(warnings);
            }
            if let Some(beside) = &beside {
                beside.ended(index, started.as_ref().ok().map(|started| started.became.as_str()));
            }
            started
        }))
        .await;
        let (mut new, mut errors) = (Vec::new(), Vec::<Error>::new());
        for (address, result) in addresses.iter().zip(results) {
            match result {
                Ok(Bridged { told, became, is_new }) => {
                    if !several {
                        let word = address.as_word();
                        let end = format!("; keybridge down {word} ends it");
                        let end = if is_new { end.as_str() } else { "" };
                        self.report().say(&format!("{address} {became}{end}"));
                    }
                    if is_new {
                        new.push((address, told.status.target.clone()));
                    }
                    bridges.push(told);
                }
                // What is wrong for every target is shown once.
                Err(error) if error.kind == ErrorKind::Usage && errors.contains(&error) => {}
                Err(error) => {
                    let is_of_one = several && error.kind != ErrorKind::Usage;
                    errors.push(if is_of_one { error.context(address) } else { error });
                }
            }
        }
        self.say_how_git_signs(&new, config)?;
        let mut signs = bridges.iter().filter(|told| told.status.lanes.git.is_some());
        if signs.any(|told| self.sets_up_git(&told.status.target)) {
            self.say_how_jj_signs();
        }
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
                self.say_lent(&status, report);
                let told = Told { status, notes: Notes::default() };
                Ok(Bridged { told, became: "is bridged".to_owned(), is_new: true })
            }
            UpOutcome::AlreadyUp { status, kept, changed } => {
                say_kept(&kept, address, report);
                let keys = send_keys(manager, address, &status, report).await?;
                let since = status.since.trim_end_matches('Z').replace('T', " ");
                let names = match changed.join(", ") {
                    names if names.is_empty() => names,
                    names => format!("; changed: {names}"),
                };
                self.say_lent(&status, report);
                let became = format!("is bridged already, since {since} UTC{names}{keys}");
                let told = Told { status, notes: Notes { changed, ..Notes::default() } };
                Ok(Bridged { told, became, is_new: false })
            }
        }
    }

    /// Says what is lent, and what of it is refused.
    fn say_lent(&self, status: &BridgeStatus, report: &Report) {
        report.say(&status.lent());
        let in_vain = self.options.ask.as_ref().and_then(|_| status.asked_in_vain());
        for warning in status.warnings().into_iter().chain(in_vain) {
            report.warn(&warning);
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
            if **address != TargetAddress::Here && !config.settings(target, &self.options)?.git() {
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

    /// Whether this call sets up git's programs in a target: for sandboxes any does.
    fn sets_up_git(&self, target: &str) -> bool {
        self.options.git == Some(true) || target.parse() == Ok(TargetAddress::Here)
    }

    /// Says what jj needs, whose settings are left alone.
    fn say_how_jj_signs(&self) {
        let report = self.report();
        report.say("for jj, in its own settings there:");
        for (name, entry) in [("gpg", ".keybridge-gpg"), ("ssh", ".keybridge-ssh-keygen")] {
            report.say(&format!(
                "  jj config set --user signing.backends.{name}.program ~/.keybridge/{entry}"
            ));
        }
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

    async fn serve_in_foreground(
        &self,
        address: &TargetAddress,
        config: &ConfigFile,
    ) -> Result<()> {
        let asker = if self.json { None } else { asker_for(std::slice::from_ref(address), None)? };
        let mut invocation = Invocation::new(self.options.clone());
        invocation.asker = asker.as_ref().map(Asker::socket);
        invocation.raises = is_typed();
        let (collecting, notes) = Notes::collect();
        let report = if self.json { collecting } else { self.report() };
        let ready = |link: &Link, status: &BridgeStatus| {
            self.say_lent(status, &report);
            if self.json {
                let object = as_json(address, link, &notes.borrow());
                print_line(&printable_json(&object.to_string()));
            } else {
                report
                    .say(&format!("{address} is bridged; Ctrl-C ends it and undoes every change"));
                if link.ready().sockets.git.is_some() && self.sets_up_git(&address.to_string()) {
                    self.say_how_jj_signs();
                }
            }
        };
        // Boxed: it is seldom needed, and large.
        let run = Box::pin(run_in_foreground(address, config, &invocation, &report, ready));
        match run.await? {
            DownOutcome::Undone { may_ask: false } => {}
            outcome => report.say(&format!("{address} {}", describe(outcome))),
        }
        Ok(())
    }
}

/// Whether a person runs this command, or a program of theirs, and not keybridge itself.
fn is_typed() -> bool {
    std::env::var_os(IN_A_FIX).is_none()
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

fn as_json(address: &TargetAddress, link: &Link, notes: &Notes) -> serde_json::Value {
    let ready = link.ready();
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
        "keys": link.keys().map(|keys| json!({
            "new": keys.new,
            "updated": keys.updated,
            "unchanged": keys.unchanged,
            "ownertrust": keys.ownertrust,
        })),
        "changed": notes.changed,
        // Those of the helper are among them.
        "warnings": notes.warnings,
        "version": env!("CARGO_PKG_VERSION"),
    })
}
