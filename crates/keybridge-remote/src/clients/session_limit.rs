//! How many clients are served at once, on all lanes together.

use std::cell::Cell;
use std::rc::Rc;

/// Counts the sessions of a bridge.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    limit: usize,
    sessions: Cell<usize>,
}

/// Allows one session. Another one may take its place when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit(Rc<SessionLimit>);

impl SessionLimit {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, sessions: Cell::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A permit, if the limit isn't reached.
    pub(crate) fn acquire(self: &Rc<Self>) -> Option<SessionPermit> {
        if self.sessions.get() >= self.limit {
            return None;
        }
        self.sessions.set(self.sessions.get() + 1);
        Some(SessionPermit(Rc::clone(self)))
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.0.sessions.set(self.0.sessions.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_dropped_can_be_given_again() {
        let limit = SessionLimit::new(2);
        let (first, second) = (limit.acquire(), limit.acquire());
        assert!(first.is_some() && second.is_some() && limit.acquire().is_none());
        drop(first);
        assert!(limit.acquire().is_some());
    }
}
