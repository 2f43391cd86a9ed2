//! A caller of the command interface as one side of a session: its blocks are read, and its responses take
//! what is written.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use keybridge_link::Duplex;
use tokio::io::Interest;
use tokio::sync::OwnedSemaphorePermit;

use super::session::Session;

/// The caller's side of a session, owned by the task of that.
pub(super) struct Caller {
    session: Rc<Session>,
    /// Waits for room for the response.
    room: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>>>>>,
    is_shut_down: bool,
}

impl Caller {
    pub(super) fn new(session: Rc<Session>) -> Self {
        Self { session, room: None, is_shut_down: false }
    }

    /// Ready when the response has room for more.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let budget = &self.session.budget;
        let room = self.room.get_or_insert_with(|| {
            let budget = budget.clone();
            Box::pin(async move { budget.room().await })
        });
        let given = ready!(room.as_mut().poll(context));
        self.room = None;
        if let (Some(given), Some(call)) = (given, self.session.call.borrow_mut().as_mut()) {
            call.response.give_room(given);
        }
        Poll::Ready(())
    }
}

impl Duplex for Caller {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let reads = wants.is_some_and(Interest::is_readable);
        let writes = wants.is_some_and(Interest::is_writable);
        if reads && !writes {
            // Nothing is left but to wait for the next line.
            self.session.answered();
        }
        let has_more =
            self.session.call.borrow().as_ref().is_some_and(|call| !call.rest().is_empty());
        if self.hung_up() || reads && has_more {
            return Poll::Ready(Ok(()));
        }
        *self.session.task.borrow_mut() = Some(context.waker().clone());
        if writes {
            return self.poll_room(context).map(Ok);
        }
        Poll::Pending
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut call = self.session.call.borrow_mut();
        let Some(call) = call.as_mut().filter(|call| !call.rest().is_empty()) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let count = io::Read::read(&mut call.rest(), buffer)?;
        call.took(count);
        Ok(count)
    }

    /// What the agent sends without a call is a comment, and dropped.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut call = self.session.call.borrow_mut();
        if call.as_mut().is_none_or(|call| call.response.add(bytes)) {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.is_shut_down = true;
        Ok(())
    }

    fn hung_up(&self) -> bool {
        self.is_shut_down || self.session.has_hung_up()
    }
}
