//! Bridges every container with a label, each in its own process, so that none can starve another. Those
//! processes end with this one, and share the Podman service that it may have started.

use std::collections::HashMap;

use keybridge_proto::printable;
use tokio::task::JoinSet;

use super::manager::BridgeManager;
use super::process::{BridgeProcess, ProcessGuard, ProcessMessage};
use super::state::StateFolder;
use crate::config::LaneScope;
use crate::engine::{Engine, EngineKind, LabelEvent, LabelOrigin};
use crate::gnupg::Gnupg;
use crate::keyring::Ceiling;
use crate::output::Report;
use crate::target::TargetAddress;
use crate::{Error, Result};

/// Bridges containers as they start and stop, until `stopped`; then ends every bridge.
pub(crate) async fn watch(
    label: &str,
    manager: &BridgeManager,
    report: &Report,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    manager.root().prune();
    let ceilings = read_ceilings(manager, report).await?;
    let engines = Engine::all().await?;
    let (processes, containers) = (JoinSet::new(), HashMap::new());
    let mut watch = Watch { label, manager, report, ceilings, processes, containers };
    let mut events = Engine::labelled(&engines, label);
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some((engine, event)) => watch.handle(&engine, event).await,
                None => return Err(Error::failed("the engines' events have ended")),
            },
            Some(Ok(process)) = watch.processes.join_next() => watch.ended(process),
            () = &mut stopped => break,
        }
    }
    watch.end().await;
    Ok(())
}

/// Reads what may be lent at most.
async fn read_ceilings(manager: &BridgeManager, report: &Report) -> Result<Vec<(Gnupg, Ceiling)>> {
    let settings = manager.all_settings()?;
    let lendings = settings.iter().map(|settings| &settings.lending);
    let words: Vec<&str> = lendings
        .flat_map(|lending| [&lending.lend, &lending.keys])
        .flatten()
        .flat_map(|words| words.split(',').map(str::trim))
        .collect();
    let mut ceilings: Vec<(Gnupg, Ceiling)> = Vec::new();
    for settings in settings.iter().filter(|settings| settings.lends_openpgp(LaneScope::Target)) {
        let gnupg = settings.gnupg();
        if ceilings.iter().any(|(of, _)| *of == gnupg) {
            continue;
        }
        let ceiling = Ceiling::of_all(&gnupg, words.iter().copied()).await;
        let ceiling = ceiling.unwrap_or_else(|error| {
            report.warn(&format!("no key of gpg-agent is lent until watch starts again: {error}"));
            Ceiling::default()
        });
        ceilings.push((gnupg, ceiling));
    }
    Ok(ceilings)
}

struct Watch<'a> {
    label: &'a str,
    manager: &'a BridgeManager,
    report: &'a Report,
    /// What may be lent at most, for each GnuPG that the settings name: what was there at the start.
    ceilings: Vec<(Gnupg, Ceiling)>,
    processes: JoinSet<Process>,
    /// The containers that the engines have reported, by id.
    containers: HashMap<String, Watched>,
}

enum Watched {
    /// It has a bridge, which waits for it while it is stopped.
    Bridged(#[allow(dead_code, reason = "held, not read")] ProcessGuard),
    /// Its bridge was stopped, and it gets none until it starts again in its engine.
    Stopped(EngineKind),
    /// It isn't bridged, since its label may be the image's. The user was warned once.
    Skipped(EngineKind),
}

/// The process of a bridge, which has ended.
struct Process {
    id: String,
    address: String,
    engine: EngineKind,
    ended: ProcessEnd,
}

/// The warning for a container that carries the label and isn't bridged.
fn skipped(address: &TargetAddress, why: &str) -> String {
    format!(
        "{address} is skipped: {why}. To bridge it, run keybridge up {address}, or start it with \
         another value of the label and name that with keybridge watch --label"
    )
}

impl Watched {
    const fn is_bridged(&self) -> bool {
        matches!(self, Self::Bridged(_))
    }

    fn is_skipped_in(&self, kind: EngineKind) -> bool {
        matches!(self, Self::Skipped(of) if *of == kind)
    }

    /// Whether its bridge was stopped, in an engine of that kind.
    fn is_stopped_in(&self, kind: EngineKind) -> bool {
        matches!(self, Self::Stopped(of) if *of == kind)
    }
}

impl Watch<'_> {
    async fn handle(&mut self, engine: &Engine, event: LabelEvent) {
        match event {
            LabelEvent::Running(ids) => {
                // After its bridge was stopped, a container that has ended may be bridged again.
                let kind = engine.kind();
                self.containers
                    .retain(|id, watched| !watched.is_stopped_in(kind) || ids.contains(id));
                self.forget_removed(engine, &ids).await;
                for id in ids {
                    if !self.containers.contains_key(&id) {
                        self.bridge(engine, &id).await;
                    }
                }
            }
            LabelEvent::Started(id) => {
                if !self.containers.get(&id).is_some_and(Watched::is_bridged) {
                    self.bridge(engine, &id).await;
                }
            }
            LabelEvent::Away(error) => self.report.warn(&error.to_string()),
            LabelEvent::Back => self.report.say(&format!("{} is back", engine.kind())),
        }
    }

    /// Starts a bridge. After a failure it is tried when the container starts again.
    async fn bridge(&mut self, engine: &Engine, id: &str) {
        let watched = self.try_bridge(engine, id).await.unwrap_or_else(|error| {
            self.report.warn(&error.to_string());
            Watched::Stopped(engine.kind())
        });
        self.containers.insert(id.to_owned(), watched);
    }

    /// Forgets skipped containers that have been removed.
    async fn forget_removed(&mut self, engine: &Engine, running: &[String]) {
        let is_away = |(id, watched): &(&String, &Watched)| {
            watched.is_skipped_in(engine.kind()) && !running.contains(id)
        };
        let away: Vec<String> =
            self.containers.iter().filter(is_away).map(|(id, _)| id.clone()).collect();
        for id in away {
            if matches!(engine.label_origin(&id, self.label).await, Ok(LabelOrigin::Missing)) {
                self.containers.remove(&id);
            }
        }
    }

    async fn try_bridge(&mut self, engine: &Engine, id: &str) -> Result<Watched> {
        let (target, _) = engine.find(id, None).await?;
        if let Some(why) = self.reason_to_skip(engine, id).await? {
            if !self.containers.get(id).is_some_and(|one| one.is_skipped_in(engine.kind())) {
                self.report.warn(&skipped(&target.address(), &why));
            }
            return Ok(Watched::Skipped(engine.kind()));
        }
        // A wrong setting is shown here, not in a log.
        let gnupg = self.manager.settings(&target.address())?.gnupg();
        let ceiling = self.ceilings.iter().find(|(of, _)| *of == gnupg);
        let ceiling = ceiling.map(|(_, ceiling)| ceiling.clone()).unwrap_or_default();
        let address = target.address().to_string();
        let folder = self.manager.root().folder(&target.key());
        let begun = {
            let (report, address) = (self.report.clone(), address.clone());
            move || report.say(&format!("{address} is watched"))
        };
        let (guard, ended) = start(self.manager, engine, id, &folder, ceiling, begun).await?;
        let (id, engine) = (id.to_owned(), engine.kind());
        self.processes
            .spawn_local(async move { Process { id, address, engine, ended: ended.await } });
        Ok(Watched::Bridged(guard))
    }

    /// Why a container is not bridged though it carries the label, if there is a reason.
    async fn reason_to_skip(&self, engine: &Engine, id: &str) -> Result<Option<String>> {
        let label = printable(self.label);
        Ok(match engine.label_origin(id, self.label).await? {
            LabelOrigin::Container => None,
            LabelOrigin::Image => Some(format!("its image carries the label {label} itself")),
            LabelOrigin::Unknown(why) => {
                Some(format!("can't check whether its image carries the label {label} ({why})"))
            }
            LabelOrigin::Missing => Some(format!("it doesn't carry the label {label}")),
        })
    }

    /// The process of a bridge has ended: it was stopped, or its container was removed.
    fn ended(&mut self, process: Process) {
        let Process { id, address, engine, ended } = process;
        match ended {
            ProcessEnd::Removed => self.report.say(&format!("{address} is gone")),
            ProcessEnd::Asked => self.report.say(&format!("{address} is no longer bridged")),
            ProcessEnd::Busy => {
                self.report.say(&format!("{address} is bridged by another process"));
            }
            ProcessEnd::Failed(ref error) => {
                let said = std::iter::once(error.to_string())
                    .chain(error.hints.iter().map(ToString::to_string));
                let said: Vec<String> = said.collect();
                self.report.warn(&format!("{address}: {}", said.join("; ")));
            }
            ProcessEnd::Died(ref why) => {
                self.report.warn(&format!("{address}: the bridge's process ended, {why}"));
            }
        }
        match ended {
            ProcessEnd::Asked | ProcessEnd::Busy | ProcessEnd::Failed(_) => {
                self.containers.insert(id, Watched::Stopped(engine));
            }
            // One that died is started again at the next list of running containers.
            ProcessEnd::Removed | ProcessEnd::Died(_) => {
                self.containers.remove(&id);
            }
        }
    }

    /// Ends every bridge, all at once.
    async fn end(mut self) {
        self.containers.clear();
        while let Some(ended) = self.processes.join_next().await {
            if let Ok(process) = ended {
                self.ended(process);
            }
        }
    }
}

/// How the process of a bridge ended.
enum ProcessEnd {
    /// It was stopped, by `down` or by us.
    Asked,
    /// The container was removed.
    Removed,
    /// Another process has the bridge.
    Busy,
    /// It failed, and said why.
    Failed(Error),
    /// It was killed or crashed.
    Died(String),
}

/// Starts the process that bridges a container. The future calls `begun` once it runs, and returns how
/// it ended.
async fn start<B: FnOnce()>(
    manager: &BridgeManager,
    engine: &Engine,
    id: &str,
    folder: &StateFolder,
    ceiling: Ceiling,
    begun: B,
) -> Result<(ProcessGuard, impl Future<Output = ProcessEnd> + use<B>)> {
    // By its id: a name can move to another container.
    let address = match engine.kind() {
        EngineKind::Docker => TargetAddress::Docker(id.to_owned()),
        EngineKind::Podman => TargetAddress::Podman(id.to_owned()),
    };
    let mut command = manager.serve_command(&address);
    command.arg("--watched");
    if let Some(host) = engine.own_service() {
        command.env("CONTAINER_HOST", host);
    }
    let (process, guard) = manager.start_process(&mut command, folder, Some(ceiling)).await?;
    Ok((guard, ended(process, begun)))
}

async fn ended(mut process: BridgeProcess, begun: impl FnOnce()) -> ProcessEnd {
    let silent = Report::silent();
    let mut begun = Some(begun);
    let mut last = None;
    while let Ok(Some(message)) = process.message(&silent).await {
        if matches!(message, ProcessMessage::Begun)
            && let Some(begun) = begun.take()
        {
            begun();
        }
        last = Some(message);
    }
    match (last, process.ended().await) {
        (Some(ProcessMessage::Removed), _) => ProcessEnd::Removed,
        (Some(ProcessMessage::Busy), _) => ProcessEnd::Busy,
        (Some(ProcessMessage::Failed(error)), _) => ProcessEnd::Failed(error),
        (Some(ProcessMessage::Begun | ProcessMessage::Ready(_)) | None, status) => match status {
            Ok(status) if status.success() => ProcessEnd::Asked,
            Ok(status) => ProcessEnd::Died(status.to_string()),
            Err(error) => ProcessEnd::Died(error.to_string()),
        },
    }
}
