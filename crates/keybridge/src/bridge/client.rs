//! The client of a session: a stream of the mux, or the client's own connection.

use std::future::poll_fn;
use std::task::{Context, Poll};

use keybridge_link::Stream;

/// The client's side of a session, owned by its task.
pub(super) trait Client {
    /// Ready when there may be something to read, room to write, or an end. Check all of them before
    /// polling again.
    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Waits until something is new, as for [`Self::poll_changed`]. Safe to cancel.
    async fn changed(&mut self) {
        poll_fn(|context| self.poll_changed(context)).await;
    }

    /// Passes what can be read to `take`, which returns how many bytes it took.
    fn read(&mut self, take: impl FnMut(&[u8]) -> usize);

    /// Sends as much as there is room for. Returns how much.
    fn write(&mut self, bytes: &[u8]) -> usize;

    /// Sends what waits to be sent. True if all that was written is in the client's socket, or on the link.
    fn flush(&self) -> bool;

    /// Whether the client writes no more and all of it was read.
    fn is_finished(&self) -> bool;

    /// Whether the client is gone.
    fn is_closed(&self) -> bool;

    /// Whether the bridge ends, and this session with it.
    fn is_ending(&self) -> bool;

    /// Ends the connection of a client that has received everything.
    async fn close(&mut self);
}

impl Client for Stream {
    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Self::poll_changed(self, context)
    }

    fn read(&mut self, take: impl FnMut(&[u8]) -> usize) {
        Self::read(self, take);
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        Self::write(self, bytes)
    }

    fn flush(&self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn is_ending(&self) -> bool {
        // The stream is closed then.
        false
    }

    /// Waits until the helper has closed it, which it does when the client has read everything.
    async fn close(&mut self) {
        self.finish();
        while !Self::is_closed(self) {
            Self::changed(self).await;
        }
    }
}
