//! A flag that is set once and wakes every task that waits for it.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Set once, for all clones.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_set: Cell<bool>,
    notify: Notify,
}

impl StopSignal {
    /// Sets it.
    pub fn set(&self) {
        self.0.is_set.set(true);
        self.0.notify.notify_waiters();
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.get()
    }

    /// The result of some work, or nothing if the signal is set before.
    pub async fn unless_set<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.wait() => None,
        }
    }

    /// Waits until it is set.
    pub async fn wait(&self) {
        while !self.0.is_set.get() {
            self.0.notify.notified().await;
        }
    }
}
