//! The process of one bridge, as seen by the process that started it: its settings on standard input,
//! where no list of processes shows them, and its messages on standard output. Once it works it holds
//! none of its starter's streams.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::BridgeStatus;
use super::control::LINE_LIMIT;
use super::state::StateFolder;
use crate::config::Invocation;
use crate::output::{Event, Report};
use crate::platform::spawn_in_background;
use crate::{Error, Result};

/// The most that what a caller asks for may take: the ceiling of thousands of keys.
pub(super) const INVOCATION_LIMIT: u64 = 2 * 1024 * 1024;

/// How long a failed bridge may take to undo what it did: its helper has ten seconds.
pub(super) const UNDOING_TIME: Duration = Duration::from_secs(20);

/// A message of a bridge to the process that started it, one on each line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum ProcessMessage {
    /// It has begun, and its starter doesn't wait for the first link.
    Begun,
    /// It works.
    Ready(BridgeStatus),
    /// Another process has the target's lock.
    Busy,
    /// It can't be set up.
    Failed(Error),
    /// The target was removed.
    Removed,
}

/// A process that was started.
pub(super) struct BridgeProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// Keeps a bridge's process running: the process ends when this is dropped or we end.
pub(super) struct ProcessGuard(ChildStdin);

impl BridgeProcess {
    /// Starts `keybridge serve` and tells it what its caller asks for.
    pub(super) async fn start(
        command: &mut Command,
        invocation: &Invocation,
        folder: &StateFolder,
    ) -> Result<(Self, ProcessGuard)> {
        let mut line = serde_json::to_vec(invocation).map_err(|error| {
            Error::failed("can't send the settings to the background process").caused_by(error)
        })?;
        line.push(b'\n');
        // Opened for appending: it may belong to another process, which has the lock.
        let log = folder.open_log()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn_in_background(command).map_err(|error| {
            let program = command.as_std().get_program().display();
            Error::failed(format!("can't start {program}")).caused_by(error)
        })?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::failed("the bridge's process has no input or no output"));
        };
        // If the process has ended already, its output ends.
        let _ = input.write_all(&line).await;
        Ok((Self { child, output: BufReader::new(output) }, ProcessGuard(input)))
    }

    /// Its next message; `None` at its end. Steps are shown meanwhile.
    pub(super) async fn message(&mut self, report: &Report) -> io::Result<Option<ProcessMessage>> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut self.output).take(LINE_LIMIT).read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            if let Ok(event) = serde_json::from_slice::<Event>(&line) {
                report.show(&event);
            } else if let Ok(message) = serde_json::from_slice(&line) {
                return Ok(Some(message));
            }
        }
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends a failed bridge, and waits until it has undone what it did.
    pub(super) async fn end(mut self, guard: ProcessGuard) {
        drop(guard);
        if tokio::time::timeout(UNDOING_TIME, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

impl ProcessGuard {
    /// Lets a bridge that works run without us.
    pub(super) async fn release(mut self) {
        // If it has ended meanwhile, that doesn't matter.
        let _ = self.0.write_all(b"\n").await;
    }
}
