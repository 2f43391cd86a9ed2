//! Whether a target is there, and following it as it goes and comes back.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Error;

/// Where a target stands, as far as can be known without a link to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Commands can be run in it.
    Running,
    /// It is frozen: links to it stay, and nothing answers.
    Paused,
    /// It doesn't run, or is just starting or ending, and may run again.
    Stopped,
    /// It is gone, and won't come back.
    Removed,
    /// Its engine doesn't answer, so it may be anything.
    Unreachable(Error),
}

/// A target that is followed, until this is dropped.
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

    /// A target whose presence is told by a task of this thread.
    pub(super) fn by<F: Future<Output = ()> + 'static>(
        now: Presence,
        follow: impl FnOnce(watch::Sender<Presence>) -> F,
    ) -> Self {
        let (told, presence) = watch::channel(now);
        Self { presence, follower: Some(tokio::task::spawn_local(follow(told))) }
    }

    /// Where the target stands now.
    pub fn now(&self) -> Presence {
        self.presence.borrow().clone()
    }

    /// Waits for the next change; for ever, once the target was removed. A target that stopped and
    /// ran again has changed, also if nobody looked in between. No change is lost when this is
    /// dropped while it waits.
    pub async fn changed(&mut self) -> Presence {
        if self.presence.changed().await.is_err() {
            // Nobody tells of changes any more: there are none.
            std::future::pending::<()>().await;
        }
        self.presence.borrow_and_update().clone()
    }

    /// Waits until the target stands as is wanted, or was removed, after which nothing comes.
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
