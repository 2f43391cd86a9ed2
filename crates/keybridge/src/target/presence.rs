//! Whether a target is running, and how that changes.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::debug;

use crate::Error;
use crate::platform::NetworkChanges;

/// Whether a target is running, as far as this is known without a link to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Commands can be run in it.
    Running,
    /// It is frozen: links to it stay open, and nothing answers.
    Paused,
    /// It isn't running, or is just starting or stopping, and may run again.
    Stopped,
    /// It was removed for good.
    Removed,
    /// Its engine doesn't answer, so its state is unknown.
    Unreachable(Error),
}

/// Follows a target until it is dropped.
#[derive(Debug)]
pub struct Following {
    presence: watch::Receiver<Presence>,
    follower: Option<JoinHandle<()>>,
}

impl Following {
    /// A target whose presence never changes.
    pub(super) fn constant(presence: Presence) -> Self {
        Self { presence: watch::channel(presence).1, follower: None }
    }

    /// A target whose presence is reported by a task of this thread.
    pub(crate) fn by<F: Future<Output = ()> + 'static>(
        now: Presence,
        follow: impl FnOnce(watch::Sender<Presence>) -> F,
    ) -> Self {
        let (changes, presence) = watch::channel(now);
        Self { presence, follower: Some(tokio::task::spawn_local(follow(changes))) }
    }

    /// The target's presence now.
    pub fn now(&self) -> Presence {
        self.presence.borrow().clone()
    }

    /// Waits for the next change; for ever, once the target was removed. A restart is a change, even if it
    /// happened between two calls. Cancel safe.
    pub async fn changed(&mut self) -> Presence {
        if self.presence.changed().await.is_err() {
            // There is no task that follows it, or it has ended.
            std::future::pending::<()>().await;
        }
        self.presence.borrow_and_update().clone()
    }

    /// Waits until the presence is a wanted one, or the target was removed.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&Presence) -> bool) -> Presence {
        let mut presence = self.presence.borrow_and_update().clone();
        while presence != Presence::Removed && !is_wanted(&presence) {
            presence = self.changed().await;
        }
        presence
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// Changes come in groups: an interface, its addresses, its routes.
const GATHERING: Duration = Duration::from_millis(300);

/// Follows a target that only the network leads to: each change of the network counts as if the target
/// were there again. A link that was lost may come back then, and one that seems to live may be dead.
pub(super) fn follow_network() -> Following {
    Following::by(Presence::Running, |told| async move {
        // Without news links are still made again, a little later.
        if let Err(error) = listen(&told).await {
            debug!(%error, "no news of the network");
            told.closed().await;
        }
    })
}

async fn listen(told: &watch::Sender<Presence>) -> io::Result<()> {
    let mut changes = NetworkChanges::listen()?;
    loop {
        changes.next().await?;
        sleep(GATHERING).await;
        changes.drain()?;
        told.send_replace(Presence::Running);
    }
}
