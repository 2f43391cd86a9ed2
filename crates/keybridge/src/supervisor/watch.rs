//! Bridges every container with a label, each in its own process.

mod bridge_process;

use std::collections::HashMap;

use keybridge_proto::printable;
use tokio::task::JoinSet;

use super::manager::BridgeManager;
use super::process::ProcessGuard;
use crate::output::Report;
use crate::target::{Engine, EngineKind, LabelEvent, LabelOrigin, TargetAddress};
use crate::{Error, Result};
use bridge_process::Ended;

/// Bridges containers as they start and stop, until `stopped`; then ends every bridge.
pub async fn watch(
    label: &str,
    manager: &BridgeManager,
    report: &Report,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    manager.root().prune();
    let engines = Engine::all().await?;
    let mut watch =
        Watch { label, manager, report, processes: JoinSet::new(), containers: HashMap::new() };
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

struct Watch<'a> {
    label: &'a str,
    manager: &'a BridgeManager,
    report: &'a Report,
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
    ended: Ended,
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
        self.manager.settings(&target.address())?;
        let address = target.address().to_string();
        let folder = self.manager.root().folder(&target.key());
        let begun = {
            let (report, address) = (self.report.clone(), address.clone());
            move || report.say(&format!("{address} is watched"))
        };
        let (guard, ended) =
            bridge_process::start(self.manager, engine, id, &folder, begun).await?;
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
            Ended::Removed => self.report.say(&format!("{address} is gone")),
            Ended::Asked => self.report.say(&format!("{address} is no longer bridged")),
            Ended::Busy => self.report.say(&format!("{address} is bridged by another process")),
            Ended::Failed(ref error) => self.report.warn(&format!("{address}: {error}")),
            Ended::Died(ref why) => {
                self.report.warn(&format!("{address}: the bridge's process ended, {why}"));
            }
        }
        match ended {
            Ended::Asked | Ended::Busy | Ended::Failed(_) => {
                self.containers.insert(id, Watched::Stopped(engine));
            }
            // One that died is started again at the next list of running containers.
            Ended::Removed | Ended::Died(_) => {
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
