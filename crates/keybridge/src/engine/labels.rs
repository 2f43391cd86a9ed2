//! Follows the containers with a label as they start.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bollard::query_parameters::EventsOptions;
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep};

use crate::engine::Engine;
use crate::{Error, Result};

/// The pauses between attempts to reach an engine.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often the running containers are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// How many events may be queued; later ones wait in the engine's stream.
const QUEUE_SIZE: usize = 64;

/// What happens to containers with a label, and to their engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelEvent {
    /// These are running, by their whole ids. Sent from time to time.
    Running(Vec<String>),
    /// One has just started, by its whole id.
    Started(String),
    /// The engine can't be reached. Events continue when it is back.
    Away(Error),
    /// The engine is back.
    Back,
}

impl Engine {
    /// Reports every container with a label, `NAME` or `NAME=VALUE`, that runs or starts in one of the
    /// engines. Never ends.
    pub(crate) fn labelled(engines: &[Self], label: &str) -> mpsc::Receiver<(Self, LabelEvent)> {
        let (events, received) = mpsc::channel(QUEUE_SIZE);
        for engine in engines {
            let (engine, label, events) = (engine.clone(), label.to_owned(), events.clone());
            tokio::task::spawn_local(Watch { engine, label, events }.run());
        }
        received
    }
}

struct Watch {
    engine: Engine,
    label: String,
    events: mpsc::Sender<(Engine, LabelEvent)>,
}

impl Watch {
    async fn send(&self, event: LabelEvent) {
        let _ = self.events.send((self.engine.clone(), event)).await;
    }

    async fn run(self) {
        let mut pause = SHORTEST_PAUSE;
        let mut is_away = false;
        while !self.events.is_closed() {
            let start = Instant::now();
            if let Err(error) = self.listen(&mut is_away).await
                && !std::mem::replace(&mut is_away, true)
            {
                self.send(LabelEvent::Away(error)).await;
            }
            if start.elapsed() > LONGEST_PAUSE {
                pause = SHORTEST_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows one subscription to its end, and lists the running containers again and again: one may start
    /// before the subscription takes effect.
    async fn listen(&self, is_away: &mut bool) -> Result<()> {
        let mut events = pin!(self.engine.api().await?.events(Some(self.subscription())));
        let mut lists = interval(LIST_INTERVAL);
        loop {
            let next = std::future::poll_fn(|context| events.as_mut().poll_next(context));
            tokio::select! {
                event = next => match event {
                    Some(Ok(event)) => {
                        if let Some(id) = event.actor.and_then(|actor| actor.id) {
                            self.send(LabelEvent::Started(id)).await;
                        }
                    }
                    Some(Err(error)) => return Err(self.engine.away(&error)),
                    None => return Err(Error::failed("the engine's events have ended")),
                },
                _ = lists.tick() => self.list(is_away).await?,
                () = self.events.closed() => return Ok(()),
            }
        }
    }

    async fn list(&self, is_away: &mut bool) -> Result<()> {
        let running = self.engine.list(&[("label", &self.label), ("status", "running")]).await?;
        if std::mem::take(is_away) {
            self.send(LabelEvent::Back).await;
        }
        let running = running.into_iter().filter_map(|container| container.id).collect();
        self.send(LabelEvent::Running(running)).await;
        Ok(())
    }

    fn subscription(&self) -> EventsOptions {
        let filters = filters(&[("type", "container"), ("label", &self.label), ("event", "start")]);
        EventsOptions { since: None, until: None, filters: Some(filters) }
    }
}

pub(crate) fn filters(pairs: &[(&str, &str)]) -> HashMap<String, Vec<String>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect()
}
