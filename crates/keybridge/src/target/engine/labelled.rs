//! The containers that carry a label, told as they start.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bollard::query_parameters::{EventsOptions, ListContainersOptions};
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep, timeout};

use super::{ANSWER_TIME, Engine};
use crate::{Error, Result};

/// An engine that is away is asked this often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often those that run are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How many starts may wait to be dealt with; a further one waits in the engine's stream.
const WAITING: usize = 64;

/// News of containers that carry a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelNews {
    /// These run, by their whole ids. Told from time to time.
    Running(Vec<String>),
    /// One has just started, by its whole id.
    Started(String),
    /// The engine is away. What it was asked goes on by itself when it is back.
    Away(Error),
    /// The engine is back.
    Back,
}

impl Engine {
    /// Tells every container with a label, `NAME` or `NAME=VALUE`, that runs or starts in one of the
    /// engines. Never ends.
    pub fn labelled(engines: &[Self], label: &str) -> mpsc::Receiver<(Self, LabelNews)> {
        let (news, told) = mpsc::channel(WAITING);
        for engine in engines {
            let (engine, label, news) = (engine.clone(), label.to_owned(), news.clone());
            tokio::task::spawn_local(Watch { engine, label, news }.run());
        }
        told
    }
}

struct Watch {
    engine: Engine,
    label: String,
    news: mpsc::Sender<(Engine, LabelNews)>,
}

impl Watch {
    async fn tell(&self, news: LabelNews) {
        let _ = self.news.send((self.engine.clone(), news)).await;
    }

    async fn run(self) {
        let mut pause = SHORTEST_PAUSE;
        let mut is_away = false;
        while !self.news.is_closed() {
            let start = Instant::now();
            if let Err(error) = self.listen(&mut is_away).await
                && !std::mem::replace(&mut is_away, true)
            {
                self.tell(LabelNews::Away(error)).await;
            }
            if start.elapsed() > LONGEST_PAUSE {
                pause = SHORTEST_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One subscription to its end. Those that run are looked at beside it, again and again: a start
    /// may come before the engine has heard of the subscription.
    async fn listen(&self, is_away: &mut bool) -> Result<()> {
        let mut events = pin!(self.engine.api().await?.events(Some(self.subscription())));
        let mut looks = interval(LOOK_AGAIN);
        loop {
            let next = std::future::poll_fn(|context| events.as_mut().poll_next(context));
            tokio::select! {
                event = next => match event {
                    Some(Ok(event)) => {
                        if let Some(id) = event.actor.and_then(|actor| actor.id) {
                            self.tell(LabelNews::Started(id)).await;
                        }
                    }
                    Some(Err(error)) => return Err(self.engine.away(&error)),
                    None => return Err(Error::failed("the engine's events have ended")),
                },
                _ = looks.tick() => self.look(is_away).await?,
                () = self.news.closed() => return Ok(()),
            }
        }
    }

    async fn look(&self, is_away: &mut bool) -> Result<()> {
        let look = self.engine.api().await?.list_containers(Some(self.running()));
        let running = timeout(ANSWER_TIME, look).await.map_err(|_| self.engine.silent())?;
        let running = running.map_err(|error| self.engine.away(&error))?;
        if std::mem::take(is_away) {
            self.tell(LabelNews::Back).await;
        }
        let running = running.into_iter().filter_map(|container| container.id).collect();
        self.tell(LabelNews::Running(running)).await;
        Ok(())
    }

    fn subscription(&self) -> EventsOptions {
        let filters = filters(&[("type", "container"), ("label", &self.label), ("event", "start")]);
        EventsOptions { since: None, until: None, filters: Some(filters) }
    }

    fn running(&self) -> ListContainersOptions {
        let filters = filters(&[("label", &self.label), ("status", "running")]);
        ListContainersOptions { filters: Some(filters), ..ListContainersOptions::default() }
    }
}

fn filters(pairs: &[(&str, &str)]) -> HashMap<String, Vec<String>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect()
}
