//! One stream of a link, as the task that owns it sees it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{self, Context, Poll};

use keybridge_proto::mux::StreamId;
use tokio::io::Interest;

use crate::{Duplex, Link};

/// Wakes the task of a stream.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    /// The task, while it waits.
    task: RefCell<Option<task::Waker>>,
    /// Something is new since the task waited last.
    changed: Cell<bool>,
    closed: Cell<bool>,
}

impl Waker {
    pub(crate) fn wake(&self) {
        self.changed.set(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.wake();
    }
}

/// One stream, held by one task. Dropping it closes the stream.
#[derive(Debug)]
pub struct Stream {
    link: Link,
    id: StreamId,
    waker: Rc<Waker>,
}

impl Stream {
    pub(crate) fn new(link: Link, id: StreamId, waker: Rc<Waker>) -> Self {
        Self { link, id, waker }
    }

    /// The number of the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Waits until there may be something to read, room to write, or an end. Check all of them before
    /// waiting again.
    pub async fn changed(&self) {
        poll_fn(|context| self.poll_changed(context)).await;
    }

    /// Ready when something is new, as for [`Self::changed`]. Only the task that polled last is woken.
    fn poll_changed(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.waker.changed.take() {
            return Poll::Ready(());
        }
        *self.waker.task.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Passes what can be read to `take`, piece by piece, while it takes something. `take` returns
    /// how many bytes it took.
    pub fn read(&self, mut take: impl FnMut(&[u8]) -> usize) {
        self.link.with_mux(|mux| {
            while !mux.front(self.id).is_empty() {
                let taken = take(mux.front(self.id));
                if taken == 0 {
                    break;
                }
                mux.consume(self.id, taken);
            }
        });
    }

    /// Queues as much as there is room for. Returns how much.
    pub fn write(&self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        self.link.with_mux(|mux| {
            let count = mux.writable(self.id).min(bytes.len());
            let part = bytes.get(..count).unwrap_or_default();
            match mux.write(self.id, part) {
                Ok(()) => count,
                Err(error) => {
                    tracing::debug!(%error, "can't write to the stream");
                    0
                }
            }
        })
    }

    /// Queues everything, waiting for room. Returns false if the stream was closed.
    pub async fn write_all(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let count = self.write(bytes);
            bytes = bytes.get(count..).unwrap_or_default();
            if self.is_closed() {
                return false;
            }
            if !bytes.is_empty() {
                self.changed().await;
            }
        }
        true
    }

    /// Ends our direction after what is queued.
    pub fn finish(&self) {
        self.link.with_mux(|mux| mux.finish(self.id));
    }

    /// Whether the peer has ended its direction and all of it was read.
    pub fn is_finished(&self) -> bool {
        self.link.with_mux(|mux| mux.is_finished(self.id))
    }

    /// Whether the stream was closed, by the peer or with the link.
    pub fn is_closed(&self) -> bool {
        self.waker.closed.get()
    }
}

/// A peer that has closed the stream has ended it; only a link that is lost is an error.
impl Duplex for Stream {
    fn poll_ready(
        &mut self,
        _: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_changed(context).map(Ok)
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        self.read(|bytes| {
            let room = buffer.get_mut(filled..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            let (room, bytes) = (room.get_mut(..count), bytes.get(..count));
            if let (Some(room), Some(bytes)) = (room, bytes) {
                room.copy_from_slice(bytes);
            }
            filled += count;
            count
        });
        if filled > 0 || self.is_finished() {
            Ok(filled)
        } else if !self.is_closed() {
            Err(io::ErrorKind::WouldBlock.into())
        } else if self.link.is_over() {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            Ok(0)
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.write(bytes) {
            0 if self.link.is_over() => Err(io::ErrorKind::ConnectionAborted.into()),
            0 if self.is_closed() => Err(io::ErrorKind::BrokenPipe.into()),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.finish();
        Ok(())
    }

    fn hung_up(&self) -> bool {
        self.is_closed()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}
