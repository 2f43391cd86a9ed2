//! The keys of a session that may change while it lasts: read again for each operation.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::gate::{KeySource, LentKeys, ReadingKeys};

/// Where the keys are read, and the reading that an operation waits for.
pub(crate) struct KeysInForce {
    source: Rc<dyn KeySource>,
    reading: RefCell<Reading>,
}

enum Reading {
    None,
    UnderWay(ReadingKeys),
    Done(Arc<LentKeys>),
}

impl fmt::Debug for KeysInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeysInForce({:?})", self.source)
    }
}

impl KeysInForce {
    pub(crate) fn new(source: Rc<dyn KeySource>) -> Self {
        Self { source, reading: RefCell::new(Reading::None) }
    }

    /// The keys as they were read last.
    pub(crate) fn known(&self) -> Arc<LentKeys> {
        self.source.known()
    }

    /// Has the keys read for the operation that begins now.
    pub(crate) fn read(&self) {
        self.reading.replace(Reading::UnderWay(Rc::clone(&self.source).read()));
    }

    /// Nobody waits for them any more.
    pub(crate) fn forget(&self) {
        self.reading.replace(Reading::None);
    }

    /// Whether they are being read, or were and nobody has taken them.
    pub(crate) fn is_asked(&self) -> bool {
        !matches!(*self.reading.borrow(), Reading::None)
    }

    /// What was read, once it is there.
    pub(crate) fn take(&self) -> Option<Arc<LentKeys>> {
        // Who has to wait polls again.
        let _ = self.poll(&Context::from_waker(Waker::noop()));
        match self.reading.replace(Reading::None) {
            Reading::Done(keys) => Some(keys),
            other => {
                self.reading.replace(other);
                None
            }
        }
    }

    /// Ready when what was asked for has been read.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut reading = self.reading.borrow_mut();
        if let Reading::UnderWay(future) = &mut *reading {
            match future.as_mut().poll(&mut Context::from_waker(context.waker())) {
                Poll::Ready(keys) => *reading = Reading::Done(keys),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}
