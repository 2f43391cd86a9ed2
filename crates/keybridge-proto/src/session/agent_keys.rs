//! The keys of a session that may change while it lasts: read again for each operation.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::assuan::Reply;
use crate::gate::{GpgGate, KeySource, LentKeys, ReadingKeys};
use crate::session::core::Outbox;

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

/// Whether the gate has the keys that are lent now. If not, they are being read.
pub(crate) fn has_keys_of_now(keys: Option<&KeysInForce>, gate: &mut GpgGate) -> bool {
    let Some(keys) = keys else { return true };
    if !keys.is_asked() {
        keys.read();
    }
    keys.take().map(|lent| gate.lend(lent)).is_some()
}

/// How many keygrips are in a `D` line: each takes up to 60 bytes, if every byte is escaped.
const KEYGRIPS_PER_LINE: usize = 16;

/// The answer to `HAVEKEY --list`.
pub(crate) fn list_keys(lent: &LentKeys, limit: usize, to_client: &mut Outbox) {
    if lent.len() > limit {
        to_client.push(Reply::Truncated.line());
        return;
    }
    let mut keygrips = lent.keygrips().peekable();
    while keygrips.peek().is_some() {
        to_client.push(b"D ");
        for keygrip in keygrips.by_ref().take(KEYGRIPS_PER_LINE) {
            to_client.push_escaped(keygrip.as_bytes());
        }
        to_client.push(b"\n");
    }
    to_client.push(Reply::Ok.line());
}
