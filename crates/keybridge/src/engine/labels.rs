//! Containers with a label: follows them as they start, and tells whether the label was set for them or comes
//! from their image.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ImageInspect};
use bollard::query_parameters::EventsOptions;
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::engine::containers::filters;
use crate::engine::error::engine_message;
use crate::engine::{ANSWER_TIME, Engine};
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
pub(crate) enum LabelEvent {
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

/// Where a label of a container comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabelOrigin {
    /// From the person who started the container.
    Container,
    /// From its image: engines copy an image's labels to its containers.
    Image,
    /// Unknown, for this reason.
    Unknown(String),
    /// The container has no such label.
    Missing,
}

impl Engine {
    /// Finds out where a label of a container comes from, `NAME` or `NAME=VALUE`. A value that the image
    /// has too counts as the image's.
    pub(crate) async fn label_origin(&self, id: &str, label: &str) -> Result<LabelOrigin> {
        let Some(container) = self.inspect(id).await? else { return Ok(LabelOrigin::Missing) };
        let Some((name, value)) = find(label, labels_of(&container)) else {
            return Ok(LabelOrigin::Missing);
        };
        // By its id: the name may belong to another image by now.
        let Some(image) = container.image.as_deref().filter(|image| !image.is_empty()) else {
            return Ok(LabelOrigin::Unknown("the engine doesn't report its image".to_owned()));
        };
        let inspect = self.api().await?.inspect_image(image);
        let image = match timeout(ANSWER_TIME, inspect).await {
            Ok(Ok(image)) => image,
            Ok(Err(error)) => return Ok(LabelOrigin::Unknown(engine_message(&error))),
            Err(_) => return Err(self.silent()),
        };
        Ok(match labels_of_image(&image).and_then(|labels| labels.get(name)) {
            Some(of_image) if of_image == value => LabelOrigin::Image,
            Some(_) | None => LabelOrigin::Container,
        })
    }
}

fn labels_of(container: &ContainerInspectResponse) -> Option<&HashMap<String, String>> {
    container.config.as_ref()?.labels.as_ref()
}

fn labels_of_image(image: &ImageInspect) -> Option<&HashMap<String, String>> {
    image.config.as_ref()?.labels.as_ref()
}

/// The label, with its value, if the container has it.
fn find<'a>(
    label: &'a str,
    labels: Option<&'a HashMap<String, String>>,
) -> Option<(&'a str, &'a str)> {
    let (name, wanted) = match label.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (label, None),
    };
    let value = labels?.get(name)?.as_str();
    wanted.is_none_or(|wanted| wanted == value).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_by_its_name_and_by_its_value_too() {
        let labels = HashMap::from([("keybridge".to_owned(), "on=1".to_owned())]);
        for (label, is_found) in [
            ("keybridge", true),
            ("keybridge=on=1", true),
            ("keybridge=on", false),
            ("keybridge=", false),
            ("key", false),
            ("", false),
        ] {
            let found = is_found.then_some(("keybridge", "on=1"));
            assert_eq!(find(label, Some(&labels)), found, "{label}");
        }
        assert_eq!(find("keybridge", None), None);
    }
}
