//! A command that runs in a target.

use std::pin::Pin;
use std::time::Duration;

use keybridge_proto::{last_line, printable};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;

use super::editor::{Exit, RunningHelper};
use super::says;
use crate::container::Exec;
use crate::platform::terminate_group;
use crate::{Error, ErrorKind, Result};

/// How much a short command may write; a target isn't trusted to stop.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// How long a short command may take; the slowest one writes the helper to a slow disk.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Why a command has no output that counts.
pub(crate) enum CommandError {
    /// It failed, and said this last. The engine's program that should run it may have said it.
    Said(String),
    /// Its output broke off, with these words of an engine.
    Lost(String),
    /// It wrote too much, took too long, or its end isn't known.
    Other(Error),
}

impl CommandError {
    /// The words that are the target's or the engine's.
    pub(crate) fn words(&self) -> Option<&str> {
        match self {
            Self::Said(words) | Self::Lost(words) => Some(words),
            Self::Other(_) => None,
        }
    }

    /// The error for a person, with the name of the target.
    pub(crate) fn named(self, name: &str) -> Error {
        match self {
            Self::Said(words) => Error::failed(says(name, &words)),
            Self::Lost(words) => Error::failed(words),
            Self::Other(error) => error,
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

async fn read_all(reader: Reader) -> Result<Vec<u8>, CommandError> {
    let mut all = Vec::new();
    let read = reader.take(OUTPUT_LIMIT + 1).read_to_end(&mut all).await;
    read.map_err(|error| CommandError::Lost(error.to_string()))?;
    if u64::try_from(all.len()).unwrap_or(u64::MAX) > OUTPUT_LIMIT {
        let message =
            format!("a command in the target wrote more than {} KiB", OUTPUT_LIMIT / 1024);
        return Err(Error::failed(message).into());
    }
    Ok(all)
}

async fn in_time<T>(
    talk: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::time::timeout(TIME_LIMIT, talk).await.unwrap_or_else(|_| {
        let message =
            format!("a command in the target took longer than {} s", TIME_LIMIT.as_secs());
        Err(Error::failed(message).into())
    })
}

pub(super) type Reader = Pin<Box<dyn AsyncRead>>;
pub(super) type Writer = Pin<Box<dyn AsyncWrite>>;

/// The streams of a command that runs in a target, and its end.
pub struct Process {
    pub(super) stdin: Writer,
    pub(super) stdout: Reader,
    pub(super) stderr: Reader,
    /// Ends the command when it is dropped, unless the command outlives us.
    pub(super) running: Running,
}

pub(super) enum Running {
    Child(OwnChild),
    Exec(Exec),
    InEditor(Exit),
}

impl Process {
    /// One with pipes. If it leads a process group, that can be made to end with us.
    pub(super) fn of_child(mut child: Child, group_ends_with_us: bool) -> Result<Self> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::failed("can't get the streams of a command"));
        };
        Ok(Self {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            running: Running::Child(OwnChild { child, group_ends_with_us }),
        })
    }

    pub(crate) fn of_exec(stdin: Writer, stdout: Reader, stderr: Reader, exec: Exec) -> Self {
        Self { stdin, stdout, stderr, running: Running::Exec(exec) }
    }

    pub(super) fn of_helper(helper: RunningHelper) -> Self {
        let RunningHelper { stdin, stdout, stderr, exit } = helper;
        Self {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            running: Running::InEditor(exit),
        }
    }

    /// Its output, its input, and the rest, which must be kept while they are used.
    pub fn split(self) -> (Reader, Writer, Remaining) {
        let Self { stdin, stdout, stderr, running } = self;
        (stdout, stdin, Remaining { stderr: Some(stderr), running })
    }

    /// Connects the command's standard streams to our own until it ends; returns its exit code.
    pub(crate) async fn relay(self) -> Result<Option<i32>> {
        let Self { mut stdin, mut stdout, mut stderr, mut running } = self;
        let input = async {
            // A command may close its input and keep running.
            let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut stdin).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
            std::future::pending::<std::convert::Infallible>().await
        };
        let (mut out, mut err) = (tokio::io::stdout(), tokio::io::stderr());
        let output = async {
            let (out, _) = tokio::join!(
                tokio::io::copy(&mut stdout, &mut out),
                tokio::io::copy(&mut stderr, &mut err)
            );
            out.map_err(|error| Error::from_source(ErrorKind::Failed, error))?;
            running.wait().await
        };
        tokio::select! {
            code = output => code,
            never = input => match never {},
        }
    }

    /// Waits for the end, without input, and returns the output of a command that succeeded. Fails if the
    /// command writes too much or takes too long.
    pub(crate) async fn output(self) -> Result<String, CommandError> {
        let Self { mut stdin, stdout, stderr, mut running } = self;
        let mut stderr = StderrTail::new(stderr);
        let talk = async {
            let _ = stdin.shutdown().await;
            drop(stdin);
            Ok::<_, CommandError>((read_all(stdout).await?, running.wait().await?))
        };
        let (out, status) = in_time(stderr.read_during(talk)).await?;
        if status != Some(0) {
            let out = printable(last_line(&out)).to_string();
            return Err(CommandError::Said(stderr.last_line().await.unwrap_or(out)));
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

/// A command's standard error: all of it is read, and the end is kept.
pub(super) struct StderrTail {
    /// `None` once it has ended.
    stderr: Option<Reader>,
    tail: Vec<u8>,
}

/// How much is kept: the last few lines say why a program failed.
const TAIL: usize = 4096;

/// How long to wait for the rest of standard error after the end of its program: another process may
/// hold it open, such as ssh's shared connection.
const LAST_WORDS: Duration = Duration::from_millis(300);

impl StderrTail {
    pub(super) fn new(stderr: Reader) -> Self {
        Self { stderr: Some(stderr), tail: Vec::new() }
    }

    /// Awaits `talk`, and reads standard error meanwhile.
    pub(super) async fn read_during<T>(&mut self, talk: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = talk => done,
            never = self.read_on() => match never {},
        }
    }

    /// The last line, of a command that has ended.
    pub(super) async fn last_line(&mut self) -> Option<String> {
        self.text().await.and_then(|text| text.lines().last().map(str::to_owned))
    }

    /// All that was kept, line by line, of a command that has ended.
    pub(super) async fn text(&mut self) -> Option<String> {
        let _ = tokio::time::timeout(LAST_WORDS, self.read_to_end()).await;
        let lines = self.tail.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let lines = lines.filter(|line| !line.is_empty());
        let lines: Vec<_> = lines.map(|line| printable(line).to_string()).collect();
        Some(lines.join("\n")).filter(|text| !text.is_empty())
    }

    /// Returns the rest of standard error.
    pub(super) fn into_stderr(self) -> Reader {
        self.stderr.unwrap_or_else(|| Box::pin(tokio::io::empty()))
    }

    async fn read_on(&mut self) -> std::convert::Infallible {
        self.read_to_end().await;
        std::future::pending().await
    }

    async fn read_to_end(&mut self) {
        while let Some(stderr) = &mut self.stderr {
            match stderr.read_buf(&mut self.tail).await {
                Ok(count) if count > 0 => {
                    let surplus = self.tail.len().saturating_sub(TAIL);
                    self.tail.drain(..surplus);
                }
                Ok(_) | Err(_) => self.stderr = None,
            }
        }
    }
}

/// The rest of a process whose input and output are in use.
pub struct Remaining {
    stderr: Option<Reader>,
    running: Running,
}

impl Remaining {
    /// The command's standard error; empty the second time.
    pub(crate) fn take_stderr(&mut self) -> Reader {
        self.stderr.take().unwrap_or_else(|| Box::pin(tokio::io::empty()))
    }

    /// Waits for the end; returns the exit code, if there is one.
    pub(crate) async fn wait(&mut self) -> Result<Option<i32>> {
        self.running.wait().await
    }
}

/// A process of ours.
pub(super) struct OwnChild {
    child: Child,
    /// It may have started others, such as the ssh of a jump host.
    group_ends_with_us: bool,
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        if self.group_ends_with_us {
            terminate_group(&mut self.child);
        }
    }
}

impl Running {
    pub(super) async fn wait(&mut self) -> Result<Option<i32>> {
        match self {
            Self::Child(own) => {
                let status = own.child.wait().await;
                status.map(|status| status.code()).map_err(|error| Error::failed(error.to_string()))
            }
            Self::Exec(exec) => exec.wait().await,
            Self::InEditor(exit) => exit.wait().await,
        }
    }
}
