//! Bridges every container that carries a label, many in one process.

use std::collections::HashMap;
use std::rc::Rc;

use tokio::task::{Id, JoinError, JoinSet};

use super::bridged::Bridged;
use super::life::Ending;
use super::serve::keep;
use super::state::StateRoot;
use crate::config::{ConfigFile, Options};
use crate::report::Report;
use crate::target::{Engine, EngineKind, LabelNews};
use crate::{Error, Result, log};

/// Bridges containers as they start and stop, until `stopped`; then ends every bridge.
pub async fn watch(
    label: &str,
    config: &ConfigFile,
    options: &Options,
    report: &Report,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let root = StateRoot::open()?;
    root.prune();
    let engines = Engine::all().await?;
    let mut watch = Watch {
        root,
        config,
        options,
        report,
        bridges: JoinSet::new(),
        containers: HashMap::new(),
    };
    let mut news = Engine::labelled(&engines, label);
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some((engine, told)) => watch.deal_with(&engine, told).await,
                None => return Err(Error::failed("the engines' events are followed no more")),
            },
            Some(ended) = watch.bridges.join_next_with_id() => watch.ended(ended),
            () = &mut stopped => break,
        }
    }
    watch.end().await
}

struct Watch<'a> {
    root: StateRoot,
    config: &'a ConfigFile,
    options: &'a Options,
    report: &'a Report,
    bridges: JoinSet<Ended>,
    /// What became of each container that was told, by its id.
    containers: HashMap<String, Watched>,
}

enum Watched {
    /// It has a bridge here, which picks it up again whenever it starts.
    Bridged { engine: EngineKind, task: Id, bridge: Rc<Bridged> },
    /// Its bridge was ended, and it has none until it starts again in its engine.
    PutDown(EngineKind),
}

/// The address of a target, and how its bridge ended.
type Ended = (String, Result<Ending>);

impl Watched {
    const fn is_bridged(&self) -> bool {
        matches!(self, Self::Bridged { .. })
    }

    /// Whether it was put down in an engine of that kind.
    fn is_put_down_in(&self, kind: EngineKind) -> bool {
        matches!(self, Self::PutDown(of) if *of == kind)
    }

    fn is_of(&self, bridge: Id) -> bool {
        matches!(self, Self::Bridged { task, .. } if *task == bridge)
    }
}

impl Watch<'_> {
    async fn deal_with(&mut self, engine: &Engine, news: LabelNews) {
        match news {
            LabelNews::Running(ids) => {
                // One that was put down and has stopped is as good as new.
                let kind = engine.kind();
                self.containers
                    .retain(|id, watched| !watched.is_put_down_in(kind) || ids.contains(id));
                for id in ids {
                    if !self.containers.contains_key(&id) {
                        self.bridge(engine, &id).await;
                    }
                }
            }
            LabelNews::Started(id) => {
                if !self.containers.get(&id).is_some_and(Watched::is_bridged) {
                    self.bridge(engine, &id).await;
                }
            }
            LabelNews::Away(error) => self.report.warn(&error.to_string()),
            LabelNews::Back => self.report.say(&format!("{} is back", engine.kind())),
        }
    }

    /// Begins a bridge; one that can't be begun is tried when its container starts again.
    async fn bridge(&mut self, engine: &Engine, id: &str) {
        let watched = self.try_bridge(engine, id).await.unwrap_or_else(|error| {
            self.report.warn(&error.to_string());
            Watched::PutDown(engine.kind())
        });
        self.containers.insert(id.to_owned(), watched);
    }

    async fn try_bridge(&mut self, engine: &Engine, id: &str) -> Result<Watched> {
        let (target, _) = engine.find(id, None).await?;
        let address = target.address().to_string();
        let settings = self.config.settings(&address, self.options)?;
        let target = target.for_user(settings.user.as_deref())?;
        let folder = self.root.folder(&target.key());
        let Some(lock) = folder.lock()? else {
            self.report.say(&format!("{address} is bridged by another process"));
            return Ok(Watched::PutDown(engine.kind()));
        };
        let token = self.root.token(&target.key())?;
        let bridge = Rc::new(Bridged::new(address.clone(), settings));
        let life = {
            let (bridge, folder) = (Rc::clone(&bridge), folder.clone());
            async move {
                // Nobody waits for the first link: one that fails is tried again.
                let ended = keep(&bridge, &target, &folder, &token, async |_| Ok(None)).await;
                drop(lock);
                (address, ended)
            }
        };
        let task = self.bridges.spawn_local(log::to_file(folder.new_log()?, life)).id();
        self.report.say(&format!("{} is watched", bridge.status().target));
        Ok(Watched::Bridged { engine: engine.kind(), task, bridge })
    }

    /// A bridge has ended: it was put down, or its container was removed.
    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let task = match ended {
            Ok((task, (address, Ok(Ending::Removed)))) => {
                self.report.say(&format!("{address} is gone"));
                self.containers.retain(|_, watched| !watched.is_of(task));
                return;
            }
            Ok((task, (address, Ok(Ending::Undone | Ending::Away(_))))) => {
                self.report.say(&format!("{address} is not bridged any more"));
                task
            }
            Ok((task, (address, Err(error)))) => {
                self.report.warn(&format!("{address}: {error}"));
                task
            }
            Err(error) => {
                self.report.warn(&format!("a bridge broke: {error}"));
                error.id()
            }
        };
        for watched in self.containers.values_mut() {
            match watched {
                Watched::Bridged { engine, task: of, .. } if *of == task => {
                    *watched = Watched::PutDown(*engine);
                }
                Watched::Bridged { .. } | Watched::PutDown(_) => {}
            }
        }
    }

    /// Ends every bridge, all at once.
    async fn end(mut self) -> Result<()> {
        for watched in self.containers.values() {
            match watched {
                Watched::Bridged { bridge, .. } => bridge.stop(),
                Watched::PutDown(_) => {}
            }
        }
        while let Some(ended) = self.bridges.join_next_with_id().await {
            self.ended(ended);
        }
        Ok(())
    }
}
