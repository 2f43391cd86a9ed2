//! The helper's log, which it writes to its standard error.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::printable;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::task::JoinHandle;

use crate::Error;
use crate::target::{Target, says};

/// Passes the helper's log on to ours, and keeps the last warnings for an error message.
pub(super) struct HelperLog {
    /// The target's name.
    name: String,
    last: Rc<RefCell<VecDeque<String>>>,
    loud: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

/// Passes a line of the helper's log on, at its own level. While the bridge is being set up, warnings are
/// lowered to info: a failure is reported as our error then.
fn log_line(line: &str, name: &str, aloud: bool, quota: &LogQuota) {
    match line.split_once(' ') {
        // Only a person who asked for it sees these, and wants to see all.
        Some(("DEBUG", text)) => tracing::debug!("{}", says(name, text)),
        Some(("TRACE", text)) => tracing::trace!("{}", says(name, text)),
        _ if !quota.has_room(Instant::now()) => {}
        Some(("ERROR", text)) if aloud => tracing::error!("{}", says(name, text)),
        Some(("WARN", text)) if aloud => tracing::warn!("{}", says(name, text)),
        Some(("INFO", text)) => tracing::info!("{}", says(name, text)),
        Some(_) | None => tracing::info!("{}", says(name, line)),
    }
}

/// Whether a line is below a warning.
fn is_report_of_work(line: &str) -> bool {
    matches!(line.split_once(' '), Some(("INFO" | "DEBUG" | "TRACE", _)))
}

/// Enough to tell why a program didn't start.
const KEPT_LINES: usize = 3;

/// The longest line of a log that is worth passing on.
const LINE_LIMIT: u64 = 4096;

impl HelperLog {
    /// Reads standard error to its end, within the quota of the bridge.
    pub(super) fn follow(
        stderr: impl AsyncRead + Unpin + 'static,
        target: &Target,
        quota: &Rc<LogQuota>,
    ) -> Self {
        let (name, quota) = (target.address().name(), Rc::clone(quota));
        let name_there = name.clone();
        let last = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&last);
        let loud = Rc::new(Cell::new(false));
        let aloud = Rc::clone(&loud);
        let task = tokio::task::spawn_local(async move {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while (&mut lines)
                .take(LINE_LIMIT)
                .read_until(b'\n', &mut line)
                .await
                .is_ok_and(|n| n > 0)
            {
                let text = printable(line.trim_ascii()).to_string();
                line.clear();
                log_line(&text, &name_there, aloud.get(), &quota);
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
        Self { name, last, loud, task }
    }

    /// Logs warnings as warnings from now on.
    pub(super) fn show_warnings(&self) {
        self.loud.set(true);
    }

    /// Waits until all that the helper wrote was read, but not long: another process may hold its
    /// output open.
    pub(super) async fn finish(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.task).await;
    }

    /// Adds the helper's last warnings to an error.
    pub(super) fn explain(&self, error: Error) -> Error {
        let last = self.last.borrow();
        // What it told over the link is the error already.
        let is_told = |line: &&String| {
            line.split_once(' ').is_some_and(|(_, text)| says(&self.name, text) == error.message)
        };
        let news = last.iter().filter(|line| !is_told(line)).map(|line| says(&self.name, line));
        let news: Vec<_> = news.collect();
        error.with_hints(news)
    }
}

/// How many lines a helper may log in a minute: an honest one has some five for each link.
const LINES_IN_A_MINUTE: u32 = 100;

/// How much the helpers of one bridge may log, over all of its links: one that logs or fails without end
/// must not push everything else out of the log.
#[derive(Debug, Default)]
pub(crate) struct LogQuota {
    since: Cell<Option<Instant>>,
    lines: Cell<u32>,
}

impl LogQuota {
    fn has_room(&self, now: Instant) -> bool {
        let is_over = |since: Instant| now >= since + Duration::from_mins(1);
        if self.since.get().is_none_or(is_over) {
            self.since.set(Some(now));
            self.lines.set(0);
        }
        self.lines.set(self.lines.get().saturating_add(1));
        if self.lines.get() == LINES_IN_A_MINUTE {
            tracing::warn!("in the target: too many log lines, the rest of this minute is dropped");
        }
        self.lines.get() < LINES_IN_A_MINUTE
    }
}

impl Drop for HelperLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_has_one_quota_and_gets_another_after_a_minute() {
        let quota = LogQuota::default();
        let start = Instant::now();
        let heard =
            |at: u64| (0..1000).filter(|_| quota.has_room(start + Duration::from_secs(at))).count();
        assert_eq!([heard(0), heard(30), heard(59), heard(60), heard(61)], [99, 0, 0, 99, 0]);
    }
}
