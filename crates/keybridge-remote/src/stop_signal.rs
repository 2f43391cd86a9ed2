//! The word that the bridge ends, for every task of it.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Said once, heard by everyone who waits or looks. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    said: Cell<bool>,
    notify: Notify,
}

impl StopSignal {
    /// Says it.
    pub fn set(&self) {
        self.0.said.set(true);
        self.0.notify.notify_waiters();
    }

    /// Whether it was said.
    pub fn is_set(&self) -> bool {
        self.0.said.get()
    }

    /// Does something unless it is said before that is done.
    pub(crate) async fn unless_set<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.wait() => None,
        }
    }

    /// Waits until it is said.
    pub async fn wait(&self) {
        while !self.0.said.get() {
            self.0.notify.notified().await;
        }
    }
}
