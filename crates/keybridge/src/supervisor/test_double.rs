//! A stand-in for [`BridgeManager`](super::BridgeManager), for tests of programs that use it.

use std::cell::RefCell;
use std::collections::HashSet;

use super::Bridges;
use crate::Result;

/// One call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `ensure`, for a container's id.
    Ensure(String),
    /// `stop`, for a container's id.
    Stop(String),
    /// `stop_all`.
    StopAll,
    /// `is_running`, for a container's id.
    IsRunning(String),
}

/// Notes every call, and behaves as if each of them worked.
///
/// ```
/// use keybridge::supervisor::{Bridges, Call, RecordingBridges};
///
/// /// What a program does when it has made a container anew.
/// async fn replace(bridges: &impl Bridges, old: &str, new: &str) -> keybridge::Result<()> {
///     bridges.stop(old).await?;
///     bridges.ensure(new).await
/// }
///
/// let bridges = RecordingBridges::default();
/// let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// runtime.block_on(replace(&bridges, "a", "b")).unwrap();
/// assert_eq!(bridges.calls(), [Call::Stop("a".into()), Call::Ensure("b".into())]);
/// ```
#[derive(Debug, Default)]
pub struct RecordingBridges {
    calls: RefCell<Vec<Call>>,
    running: RefCell<HashSet<String>>,
}

impl RecordingBridges {
    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.borrow().clone()
    }
}

impl Bridges for RecordingBridges {
    async fn ensure(&self, container: &str) -> Result<()> {
        self.calls.borrow_mut().push(Call::Ensure(container.to_owned()));
        self.running.borrow_mut().insert(container.to_owned());
        Ok(())
    }

    async fn stop(&self, container: &str) -> Result<()> {
        self.calls.borrow_mut().push(Call::Stop(container.to_owned()));
        self.running.borrow_mut().remove(container);
        Ok(())
    }

    async fn stop_all(&self) -> Result<()> {
        self.calls.borrow_mut().push(Call::StopAll);
        self.running.borrow_mut().clear();
        Ok(())
    }

    fn is_running(&self, container: &str) -> bool {
        self.calls.borrow_mut().push(Call::IsRunning(container.to_owned()));
        self.running.borrow().contains(container)
    }
}
