//! Following a container by the engine's events.
//!
//! An event only says that it is time to look: what a look finds is what is told. So an event that
//! comes late, or twice, tells nothing wrong.

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

use crate::target::engine::error::words;
use crate::target::{Engine, EngineKind, Following, Presence};

/// Short at first, since an engine is often back at once. The longest is short enough for people who
/// wait for their engine.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the events may be silent before the container is looked at: a connection that is cut
/// without a word looks like an engine with nothing to tell.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Follows a container from now on.
pub(super) async fn follow(engine: Engine, id: String) -> Following {
    let seen = look(&engine, &id).await;
    let now = seen.presence.clone();
    Following::by(now, |told| Follower { engine, id, seen, told }.follow())
}

struct Follower {
    engine: Engine,
    id: String,
    seen: Sight,
    told: watch::Sender<Presence>,
}

/// What a look at a container finds.
#[derive(PartialEq, Eq)]
struct Sight {
    presence: Presence,
    /// When the container was last started: tells one run of it from the next.
    started_at: Option<String>,
}

impl Follower {
    async fn follow(mut self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let start = Instant::now();
            let was_away = match self.seen.presence {
                Presence::Running | Presence::Paused | Presence::Stopped => {
                    self.listen().await;
                    false
                }
                Presence::Unreachable(_) => true,
                Presence::Removed => return,
            };
            // A subscription that has served for some time is renewed at once.
            if start.elapsed() < LONGEST_PAUSE {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            } else {
                pause = SHORTEST_PAUSE;
            }
            let is_away = matches!(self.look().await, Presence::Unreachable(_));
            if was_away && !is_away {
                pause = SHORTEST_PAUSE;
            }
        }
    }

    /// Looks at the container at every event of one subscription. Ends with the subscription, when
    /// the engine doesn't answer, and when the container is gone.
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
                Ok(Some(Err(error))) => return debug!("the engine's events: {}", words(&error)),
                Ok(None) => return debug!("the engine's events have ended"),
                Err(_) => {}
            }
            match self.look().await {
                Presence::Running | Presence::Paused | Presence::Stopped => {}
                Presence::Removed | Presence::Unreachable(_) => return,
            }
        }
    }

    /// Looks at the container, and tells what is new.
    async fn look(&mut self) -> &Presence {
        let sight = look(&self.engine, &self.id).await;
        if sight != self.seen {
            self.told.send_replace(sight.presence.clone());
            self.seen = sight;
        }
        &self.seen.presence
    }
}

async fn look(engine: &Engine, id: &str) -> Sight {
    let (presence, state) = match engine.inspect(id).await {
        Ok(Some(container)) => (presence_of(&container), container.state),
        Ok(None) => (Presence::Removed, None),
        Err(error) => (Presence::Unreachable(error), None),
    };
    Sight { presence, started_at: state.and_then(|state| state.started_at) }
}

/// The events that change where a container stands, those that came shortly before too.
fn subscription(kind: EngineKind, id: &str) -> EventsOptions {
    let filters = [
        ("type", ["container"].as_slice()),
        ("container", &[id]),
        // Podman tells a death as `die`, but knows it as `died`; and `remove` is its `destroy`.
        ("event", &["start", "die", "died", "pause", "unpause", "destroy", "remove"]),
    ];
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let filters: HashMap<_, Vec<_>> =
        filters.into_iter().map(|(name, values)| (name.to_owned(), owned(values))).collect();
    EventsOptions { since: Some(since(kind)), until: None, filters: Some(filters) }
}

/// From when on events are told, so that those are which came between the last look and the
/// subscription.
fn since(kind: EngineKind) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let moment = match kind {
        // Long ago, since it may be on a machine with another clock; it remembers some hundred.
        EngineKind::Docker => 1,
        // It remembers all that ever happened, and has our clock.
        EngineKind::Podman => now.saturating_sub(LONGEST_SILENCE.as_secs()),
    };
    moment.to_string()
}

type Told = std::result::Result<EventMessage, EngineError>;

/// The next event after those that are there already, of which one look tells the sum.
async fn next(mut events: Pin<&mut impl Stream<Item = Told>>) -> Option<Told> {
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

/// Where a container stands that the engine knows.
pub(super) fn presence_of(container: &ContainerInspectResponse) -> Presence {
    use ContainerStateStatusEnum as Status;
    match container.state.as_ref().and_then(|state| state.status) {
        Some(Status::RUNNING) => Presence::Running,
        Some(Status::PAUSED) => Presence::Paused,
        // One that is being removed is there until the engine doesn't know it any more.
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
