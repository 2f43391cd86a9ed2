//! What the helper complains about.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::printable;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::task::JoinHandle;

use crate::Error;

/// What the helper complains about: passed on to our log, and the last complaints kept for an error.
pub(super) struct HelperLog {
    last: Rc<RefCell<VecDeque<String>>>,
    loud: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

/// Passes a line of the helper's log on, at the level that it has there. Not aloud while the bridge is
/// being set up: what fails then is told as an error of ours.
fn log_line(line: &str, aloud: bool) {
    match line.split_once(' ') {
        Some(("ERROR", text)) if aloud => tracing::error!("in the target: {text}"),
        Some(("WARN", text)) if aloud => tracing::warn!("in the target: {text}"),
        Some(("DEBUG", text)) => tracing::debug!("in the target: {text}"),
        Some(("TRACE", text)) => tracing::trace!("in the target: {text}"),
        Some(("INFO", text)) => tracing::info!("in the target: {text}"),
        Some(_) | None => tracing::info!("in the target: {line}"),
    }
}

/// Whether a line of the helper's log tells of its work, and not of what went wrong.
fn is_report_of_work(line: &str) -> bool {
    matches!(line.split_once(' '), Some(("INFO" | "DEBUG" | "TRACE", _)))
}

/// Enough to tell why a program didn't start.
const KEPT_LINES: usize = 3;

/// The longest line of a log that is worth passing on.
const LINE_LIMIT: u64 = 4096;

impl HelperLog {
    /// Reads standard error to its end.
    pub(super) fn follow(stderr: impl AsyncRead + Unpin + 'static) -> Self {
        let last = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&last);
        let loud = Rc::new(Cell::new(false));
        let aloud = Rc::clone(&loud);
        let task = tokio::task::spawn_local(async move {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            let mut quota = Quota::new();
            while (&mut lines)
                .take(LINE_LIMIT)
                .read_until(b'\n', &mut line)
                .await
                .is_ok_and(|n| n > 0)
            {
                let text = printable(line.trim_ascii()).to_string();
                line.clear();
                if quota.has_room() {
                    log_line(&text, aloud.get());
                }
                if is_report_of_work(&text) {
                    continue;
                }
                let mut kept = kept.borrow_mut();
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(text);
            }
        });
        Self { last, loud, task }
    }

    /// Has complaints be heard from now on.
    pub(super) fn speak_up(&self) {
        self.loud.set(true);
    }

    /// Waits until everything was read that the helper wrote; not for long, since another process
    /// may hold its output open.
    pub(super) async fn finish(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.task).await;
    }

    /// Adds what the helper said last.
    pub(super) fn explain(&self, error: Error) -> Error {
        let last = self.last.borrow();
        let news = last.iter().filter(|line| !line.contains(&error.message)).cloned();
        let news: Vec<String> = news.collect();
        news.iter().fold(error, |error, line| error.hint(format!("the helper said: {line}")))
    }
}

/// How many lines a helper may log in a minute: thousands of sessions at debug level would be cut, a
/// person reads less.
const LINES_IN_A_MINUTE: u32 = 1000;

/// A helper that complains without end must not fill the disk.
struct Quota {
    since: Instant,
    lines: u32,
}

impl Quota {
    fn new() -> Self {
        Self { since: Instant::now(), lines: 0 }
    }

    fn has_room(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_mins(1) {
            *self = Self::new();
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines == LINES_IN_A_MINUTE {
            tracing::warn!("in the target: it complains too much, and is not heard for a minute");
        }
        self.lines < LINES_IN_A_MINUTE
    }
}

impl Drop for HelperLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}
