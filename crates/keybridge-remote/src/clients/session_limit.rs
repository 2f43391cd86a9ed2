//! How many clients are served at once, on all lanes together.

use std::cell::Cell;
use std::rc::Rc;

/// Counts the sessions of a bridge.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    limit: usize,
    admitted: Cell<usize>,
}

/// One session's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit(Rc<SessionLimit>);

impl SessionLimit {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, admitted: Cell::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A place, if one is free.
    pub(crate) fn admit(self: &Rc<Self>) -> Option<SessionPermit> {
        if self.admitted.get() >= self.limit {
            return None;
        }
        self.admitted.set(self.admitted.get() + 1);
        Some(SessionPermit(Rc::clone(self)))
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.0.admitted.set(self.0.admitted.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_back_is_given_again() {
        let admission = SessionLimit::new(2);
        let (first, second) = (admission.admit(), admission.admit());
        assert!(first.is_some() && second.is_some() && admission.admit().is_none());
        drop(first);
        assert!(admission.admit().is_some());
    }
}
