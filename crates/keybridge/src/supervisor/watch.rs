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
use crate::target::{Engine, LabelNews};
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
    let engine = Engine::connect().await?;
    let mut watch = Watch {
        engine: &engine,
        root,
        config,
        options,
        report,
        bridges: JoinSet::new(),
        containers: HashMap::new(),
    };
    let mut news = engine.labelled(label);
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => watch.deal_with(told).await,
                None => return Err(Error::failed("the engine's events are followed no more")),
            },
            Some(ended) = watch.bridges.join_next_with_id() => watch.ended(ended),
            () = &mut stopped => break,
        }
    }
    watch.end().await
}

struct Watch<'a> {
    engine: &'a Engine,
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
    Bridged { task: Id, bridge: Rc<Bridged> },
    /// Its bridge was ended, and it has none until it starts again.
    PutDown,
}

/// The address of a target, and how its bridge ended.
type Ended = (String, Result<Ending>);

impl Watched {
    const fn is_bridged(&self) -> bool {
        matches!(self, Self::Bridged { .. })
    }

    fn is_of(&self, bridge: Id) -> bool {
        matches!(self, Self::Bridged { task, .. } if *task == bridge)
    }
}

impl Watch<'_> {
    async fn deal_with(&mut self, news: LabelNews) {
        match news {
            LabelNews::Running(ids) => {
                // One that was put down and has stopped is as good as new.
                self.containers.retain(|id, watched| watched.is_bridged() || ids.contains(id));
                for id in ids {
                    if !self.containers.contains_key(&id) {
                        self.bridge(&id).await;
                    }
                }
            }
            LabelNews::Started(id) => {
                if !self.containers.get(&id).is_some_and(Watched::is_bridged) {
                    self.bridge(&id).await;
                }
            }
            LabelNews::Away(error) => self.report.warn(&error.to_string()),
            LabelNews::Back => self.report.say("the engine is back"),
        }
    }

    /// Begins a bridge; one that can't be begun is tried when its container starts again.
    async fn bridge(&mut self, id: &str) {
        let watched = self.try_bridge(id).await.unwrap_or_else(|error| {
            self.report.warn(&error.to_string());
            Watched::PutDown
        });
        self.containers.insert(id.to_owned(), watched);
    }

    async fn try_bridge(&mut self, id: &str) -> Result<Watched> {
        let (target, _) = self.engine.find(id, None).await?;
        let address = target.address().to_string();
        let settings = self.config.settings(&address, self.options)?;
        // Found again for the user that the settings name.
        let (target, _) = self.engine.find(id, settings.user.as_deref()).await?;
        let folder = self.root.folder(&target.key());
        let Some(lock) = folder.lock()? else {
            self.report.say(&format!("{address} is bridged by another process"));
            return Ok(Watched::PutDown);
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
        Ok(Watched::Bridged { task, bridge })
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
        for watched in self.containers.values_mut().filter(|watched| watched.is_of(task)) {
            *watched = Watched::PutDown;
        }
    }

    /// Ends every bridge, all at once.
    async fn end(mut self) -> Result<()> {
        for watched in self.containers.values() {
            match watched {
                Watched::Bridged { bridge, .. } => bridge.stop(),
                Watched::PutDown => {}
            }
        }
        while let Some(ended) = self.bridges.join_next_with_id().await {
            self.ended(ended);
        }
        Ok(())
    }
}
