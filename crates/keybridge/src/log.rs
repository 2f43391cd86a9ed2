//! Where a bridge's log lines go: to its own file, however many bridges one process has.
//!
//! All tasks run on one thread, so the log of the task that runs is noted for the thread while the
//! task is polled. Tasks that are started with `spawn_local` here write to the log of their parent.

use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

thread_local! {
    static CURRENT: RefCell<Option<Rc<File>>> = const { RefCell::new(None) };
}

/// Has a future write its log lines to a file.
pub(crate) fn to_file<F: Future>(file: File, future: F) -> impl Future<Output = F::Output> {
    Logged { log: Some(Rc::new(file)), future: Box::pin(future) }
}

/// Starts a task of this thread that writes to the log of the one that starts it.
pub(crate) fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let log = CURRENT.with_borrow(Clone::clone);
    tokio::task::spawn_local(Logged { log, future: Box::pin(future) })
}

struct Logged<F> {
    log: Option<Rc<File>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Logged<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let before = CURRENT.replace(self.log.clone());
        let poll = self.future.as_mut().poll(context);
        CURRENT.set(before);
        poll
    }
}

/// Writes to the log of the task that runs, or to standard error.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match CURRENT.with_borrow(Clone::clone) {
            Some(log) => (&*log).write(bytes),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[tokio::test(flavor = "current_thread")]
    async fn tasks_write_to_the_log_of_their_parent() {
        let mut files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        let bridge = |file: &File, name: &'static str| {
            to_file(file.try_clone().unwrap(), async move {
                let child = spawn_local(async move {
                    tokio::task::yield_now().await;
                    write!(LogWriter, "{name}'s child").unwrap();
                });
                tokio::task::yield_now().await;
                child.await.unwrap();
            })
        };
        let both = async {
            tokio::join!(bridge(&files[0], "one"), bridge(&files[1], "two"));
        };
        tokio::task::LocalSet::new().run_until(both).await;
        for (file, name) in files.iter_mut().zip(["one", "two"]) {
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("{name}'s child"));
        }
    }
}
