//! Follows a container by the engine's events.
//!
//! An event only triggers an inspection, and what that finds is reported. So an event that is late, or
//! sent twice, does no harm.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::errors::Error as EngineError;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, EventMessage};
use bollard::query_parameters::EventsOptions;
use futures_core::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::engine::error::engine_message;
use crate::engine::{Engine, EngineKind};
use crate::target::{Following, Presence};

/// The pauses between attempts: short at first, since an engine is often back at once, and never too long
/// for people who wait for their engine.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait for an event before the container is inspected: a connection that was cut silently
/// looks like an engine without events.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Follows a container from now on.
pub(crate) async fn follow(engine: Engine, id: String) -> Following {
    let last = inspect(&engine, &id).await;
    let now = last.presence.clone();
    Following::by(now, |changes| Follower { engine, id, last, changes }.follow())
}

struct Follower {
    engine: Engine,
    id: String,
    last: Inspection,
    changes: watch::Sender<Presence>,
}

/// What an inspection of a container finds.
#[derive(PartialEq, Eq)]
struct Inspection {
    presence: Presence,
    /// When the container was last started, to notice that it was restarted.
    started_at: Option<String>,
}

impl Follower {
    async fn follow(mut self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let start = Instant::now();
            let was_away = match self.last.presence {
                Presence::Running | Presence::Paused | Presence::Stopped => {
                    self.listen().await;
                    false
                }
                Presence::Unreachable(_) => true,
                Presence::Removed => return,
            };
            // A subscription that lasted for some time is renewed at once.
            if start.elapsed() < LONGEST_PAUSE {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                pause = SHORTEST_PAUSE;
            }
            let is_away = matches!(self.inspect().await, Presence::Unreachable(_));
            if was_away && !is_away {
                pause = SHORTEST_PAUSE;
            }
        }
    }

    /// Inspects the container at every event of one subscription. Ends with the subscription, when the
    /// engine doesn't answer, and when the container was removed.
    async fn listen(&mut self) {
        let engine = self.engine.clone();
        let api = match engine.api().await {
            Ok(api) => api,
            Err(error) => return debug!("the engine: {error}"),
        };
        let mut events = pin!(api.events(Some(subscription(engine.kind(), &self.id))));
        loop {
            match timeout(LONGEST_SILENCE, next(events.as_mut())).await {
                Ok(Some(Ok(event))) => debug!(event = ?event.action, "the container"),
                Ok(Some(Err(error))) => {
                    return debug!("the engine's events: {}", engine_message(&error));
                }
                Ok(None) => return debug!("the engine's events have ended"),
                Err(_) => {}
            }
            match self.inspect().await {
                Presence::Running | Presence::Paused | Presence::Stopped => {}
                Presence::Removed | Presence::Unreachable(_) => return,
            }
        }
    }

    /// Inspects the container, and reports a change.
    async fn inspect(&mut self) -> &Presence {
        let found = inspect(&self.engine, &self.id).await;
        if found != self.last {
            self.changes.send_replace(found.presence.clone());
            self.last = found;
        }
        &self.last.presence
    }
}

async fn inspect(engine: &Engine, id: &str) -> Inspection {
    let (presence, state) = match engine.inspect(id).await {
        Ok(Some(container)) => (presence_of(&container), container.state),
        Ok(None) => (Presence::Removed, None),
        Err(error) => (Presence::Unreachable(error), None),
    };
    Inspection { presence, started_at: state.and_then(|state| state.started_at) }
}

/// The events that change a container's presence, including those of the last moments.
fn subscription(kind: EngineKind, id: &str) -> EventsOptions {
    let filters = [
        ("type", ["container"].as_slice()),
        ("container", &[id]),
        // Podman reports a death as `die`, but filters it as `died`; its `destroy` is `remove`.
        ("event", &["start", "die", "died", "pause", "unpause", "destroy", "remove"]),
    ];
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let filters: HashMap<_, Vec<_>> =
        filters.into_iter().map(|(name, values)| (name.to_owned(), owned(values))).collect();
    EventsOptions { since: Some(since(kind)), until: None, filters: Some(filters) }
}

/// The time from which events are sent, to include those between the last inspection and the
/// subscription.
fn since(kind: EngineKind) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let moment = match kind {
        // Long ago, since its clock may differ from ours; it remembers only some hundred events.
        EngineKind::Docker => 1,
        // It remembers all events, and has our clock.
        EngineKind::Podman => now.saturating_sub(LONGEST_SILENCE.as_secs()),
    };
    moment.to_string()
}

type EventResult = std::result::Result<EventMessage, EngineError>;

/// Waits for an event, and skips to the last one that is there: one inspection covers them all.
async fn next(mut events: Pin<&mut impl Stream<Item = EventResult>>) -> Option<EventResult> {
    let mut last = std::future::poll_fn(|context| events.as_mut().poll_next(context)).await;
    while let Some(Ok(_)) = last {
        let more = std::future::poll_fn(|context| {
            std::task::Poll::Ready(events.as_mut().poll_next(context))
        });
        match more.await {
            std::task::Poll::Ready(event) => last = event,
            std::task::Poll::Pending => break,
        }
    }
    last
}

/// The presence of a container that the engine knows.
pub(crate) fn presence_of(container: &ContainerInspectResponse) -> Presence {
    use ContainerStateStatusEnum as Status;
    match container.state.as_ref().and_then(|state| state.status) {
        Some(Status::RUNNING) => Presence::Running,
        Some(Status::PAUSED) => Presence::Paused,
        // A container that is being removed counts as stopped until the engine has forgotten it.
        Some(
            Status::RESTARTING
            | Status::CREATED
            | Status::EXITED
            | Status::STOPPING
            | Status::DEAD
            | Status::REMOVING
            | Status::EMPTY,
        )
        | None => Presence::Stopped,
    }
}
