//! A side of a session that does what a script says.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use keybridge_link::Duplex;
use tokio::io::Interest;
use tokio::task::yield_now;

/// No test has as many turns.
const MOST_POLLS: usize = 10_000;

/// One side of a session, as the test plays it.
#[derive(Debug, Clone, Default)]
pub(crate) struct End(pub(crate) Rc<RefCell<Script>>);

/// What a side says and takes, and what has come of it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) to_read: VecDeque<u8>,
    pub(crate) then: Then,
    /// What every call from now on fails with.
    pub(crate) failure: Option<io::ErrorKind>,
    /// What every write from now on fails with.
    pub(crate) write_failure: Option<io::ErrorKind>,
    pub(crate) has_hung_up: bool,
    pub(crate) written: Vec<u8>,
    /// How much more is taken.
    pub(crate) room: usize,
    /// How much was ever read.
    pub(crate) read: usize,
    pub(crate) is_dropped: bool,
    pub(crate) is_shut_down: bool,
    /// How often it was asked whether it is ready.
    polls: usize,
    task: Option<Waker>,
}

/// What follows the bytes that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Then {
    #[default]
    Nothing,
    End,
    CommentsForEver,
}

impl End {
    pub(crate) fn new() -> Self {
        let end = Self::default();
        end.0.borrow_mut().room = usize::MAX;
        end
    }

    /// Changes the script, wakes the session, and lets it do what it can.
    pub(crate) async fn play<R>(&self, change: impl FnOnce(&mut Script) -> R) -> R {
        let result = change(&mut self.0.borrow_mut());
        let task = self.0.borrow_mut().task.take();
        if let Some(task) = task {
            task.wake();
        }
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(self.0.borrow().polls < MOST_POLLS, "the session spins");
        result
    }

    pub(crate) async fn says(&self, bytes: &[u8]) {
        self.play(|script| script.to_read.extend(bytes)).await;
    }

    pub(crate) async fn fails(&self) {
        self.play(|script| script.failure = Some(io::ErrorKind::ConnectionReset)).await;
    }

    /// What has come since the last call.
    pub(crate) fn got(&self) -> String {
        String::from_utf8(self.got_bytes()).unwrap()
    }

    pub(crate) fn got_bytes(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.0.borrow().is_dropped
    }
}

/// The session's end of a script.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) End);

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.0.borrow_mut().is_dropped = true;
    }
}

impl Duplex for Scripted {
    /// Tells of changes, as a stream of the mux does. An end can be read all the time, as that of a socket.
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut script = self.0.0.borrow_mut();
        script.polls += 1;
        let is_at_end = script.then == Then::End && wants.is_some_and(Interest::is_readable);
        if is_at_end && script.polls < MOST_POLLS {
            return Poll::Ready(Ok(()));
        }
        match script.task.replace(context.waker().clone()) {
            Some(_) => Poll::Pending,
            None => Poll::Ready(Ok(())),
        }
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut script = self.0.0.borrow_mut();
        if script.then == Then::CommentsForEver {
            script.to_read.extend(b"# comment\n");
        }
        let count = script.to_read.len().min(buffer.len());
        for (into, byte) in buffer.iter_mut().zip(script.to_read.drain(..count)) {
            *into = byte;
        }
        script.read += count;
        match script.failure {
            _ if count > 0 => Ok(count),
            Some(kind) => Err(kind.into()),
            None if script.then == Then::End => Ok(0),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut script = self.0.0.borrow_mut();
        let count = script.room.min(bytes.len());
        match script.failure.or(script.write_failure) {
            Some(kind) => Err(kind.into()),
            None if count == 0 => Err(io::ErrorKind::WouldBlock.into()),
            None => {
                script.room -= count;
                script.written.extend(bytes.iter().take(count));
                Ok(count)
            }
        }
    }

    fn shutdown(&mut self) -> io::Result<()> {
        let mut script = self.0.0.borrow_mut();
        (script.is_shut_down, script.has_hung_up) = (true, true);
        Ok(())
    }

    fn hung_up(&self) -> bool {
        self.0.0.borrow().has_hung_up
    }
}
