//! A command that runs in a target.

use std::pin::Pin;
use std::time::Duration;

use keybridge_proto::printable;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;

use super::container::Exec;
use super::editor::{Carried, Exit};
use crate::{Error, ErrorKind, Result};

/// What a short command may write; a target is not trusted to be brief.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// What a short command may take; the longest writes the helper to a slow disk.
const TIME_LIMIT: Duration = Duration::from_mins(1);

async fn read_all(reader: Reader) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let read = reader.take(OUTPUT_LIMIT + 1).read_to_end(&mut all).await;
    read.map_err(|error| Error::failed(error.to_string()))?;
    if u64::try_from(all.len()).unwrap_or(u64::MAX) > OUTPUT_LIMIT {
        let message = format!("a command there wrote more than {} KiB", OUTPUT_LIMIT / 1024);
        return Err(Error::failed(message));
    }
    Ok(all)
}

async fn in_time<T>(talk: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(TIME_LIMIT, talk).await.unwrap_or_else(|_| {
        let message = format!("a command there took longer than {} s", TIME_LIMIT.as_secs());
        Err(Error::failed(message))
    })
}

pub(super) type Reader = Pin<Box<dyn AsyncRead>>;
pub(super) type Writer = Pin<Box<dyn AsyncWrite>>;

/// The streams of a command that runs in a target, and its end.
pub struct Process {
    pub(super) stdin: Writer,
    pub(super) stdout: Reader,
    pub(super) stderr: Reader,
    /// Held so that the command ends with us, unless it is to outlive us.
    pub(super) running: Running,
}

pub(super) enum Running {
    Child(Child),
    Group(Group),
    Exec(Exec),
    Carried(Exit),
}

impl Process {
    pub(super) fn of_child(mut child: Child) -> Result<Self> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::failed("a command without pipes"));
        };
        Ok(Self {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            running: Running::Child(child),
        })
    }

    /// A child that leads a process group of its own.
    pub(super) fn of_group(child: Child, ends_with_us: bool) -> Result<Self> {
        let process = Self::of_child(child)?;
        Ok(match process.running {
            Running::Child(leader) => {
                let running = Running::Group(Group { leader, ends_with_us });
                Self { running, ..process }
            }
            Running::Group(_) | Running::Exec(_) | Running::Carried(_) => process,
        })
    }

    pub(super) fn of_exec(stdin: Writer, stdout: Reader, stderr: Reader, exec: Exec) -> Self {
        Self { stdin, stdout, stderr, running: Running::Exec(exec) }
    }

    pub(super) fn of_carried(carried: Carried) -> Self {
        let Carried { stdin, stdout, stderr, exit } = carried;
        Self {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            running: Running::Carried(exit),
        }
    }

    /// Its output, its input, and the rest, which has to be kept for as long as they are used.
    pub fn split(self) -> (Reader, Writer, Remaining) {
        let Self { stdin, stdout, stderr, running } = self;
        (stdout, stdin, Remaining { stderr: Some(stderr), running })
    }

    /// Joins the command's standard streams to our own until it has ended; gives back its exit code.
    pub async fn relay(self) -> Result<Option<i32>> {
        let Self { mut stdin, mut stdout, mut stderr, mut running } = self;
        let input = async {
            // A command that has enough of its input goes on without it.
            let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut stdin).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
            std::future::pending::<std::convert::Infallible>().await
        };
        let (mut out, mut complaints) = (tokio::io::stdout(), tokio::io::stderr());
        let output = async {
            let (out, _) = tokio::join!(
                tokio::io::copy(&mut stdout, &mut out),
                tokio::io::copy(&mut stderr, &mut complaints)
            );
            out.map_err(|error| Error::from_source(ErrorKind::Failed, error))?;
            running.wait().await
        };
        tokio::select! {
            code = output => code,
            never = input => match never {},
        }
    }

    /// Writes `input`, waits for the end and gives back the output of a command that ended well.
    /// One that says too much, or takes too long, is given up.
    pub(super) async fn output(self, input: &[u8]) -> Result<String> {
        let Self { mut stdin, stdout, stderr, mut running } = self;
        let mut complaints = Complaints::new(stderr);
        let feed = async {
            // A command that doesn't read its input says itself what is wrong.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
        };
        let talk = async {
            let ((), out) = tokio::join!(feed, read_all(stdout));
            Ok::<_, Error>((out?, running.wait().await?))
        };
        let (out, status) = in_time(complaints.beside(talk)).await?;
        if status != Some(0) {
            let out = last_line(&out);
            let reason = complaints.last_line().await.unwrap_or(out);
            return Err(Error::failed(reason));
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

/// What a command writes to standard error: all of it is read, and the end is kept.
pub(super) struct Complaints {
    /// Nothing once it has ended.
    stderr: Option<Reader>,
    tail: Vec<u8>,
}

/// What is kept of complaints: the last few lines tell why a program gave up.
const TAIL: usize = 4096;

/// How long to wait for the rest of standard error after the end of its program: another process may
/// hold it open, such as ssh's shared connection.
const LAST_WORDS: Duration = Duration::from_millis(300);

impl Complaints {
    pub(super) fn new(stderr: Reader) -> Self {
        Self { stderr: Some(stderr), tail: Vec::new() }
    }

    /// Awaits something, and reads what is complained about meanwhile.
    pub(super) async fn beside<T>(&mut self, talk: impl Future<Output = T>) -> T {
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

    /// Gives standard error to somebody else.
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

/// What a program says last is why it gave up.
pub(super) fn last_line(said: &[u8]) -> String {
    let said = said.trim_ascii();
    let last = said.rsplit(|byte| *byte == b'\n').next().unwrap_or(said);
    printable(last.trim_ascii()).to_string()
}

/// What is left of a process when its streams are in use.
pub struct Remaining {
    stderr: Option<Reader>,
    running: Running,
}

impl Remaining {
    /// What the command complains about; nothing the second time.
    pub fn take_stderr(&mut self) -> Reader {
        self.stderr.take().unwrap_or_else(|| Box::pin(tokio::io::empty()))
    }

    /// The engine's command, if it is one.
    pub(crate) fn exec(&self) -> Option<Exec> {
        match &self.running {
            Running::Exec(exec) => Some(exec.clone()),
            Running::Child(_) | Running::Group(_) | Running::Carried(_) => None,
        }
    }

    /// Waits for the end; gives back the exit code, if there is one.
    pub async fn wait(&mut self) -> Result<Option<i32>> {
        self.running.wait().await
    }
}

/// A child and the processes that it has started, such as the ssh of a jump host.
pub(super) struct Group {
    leader: Child,
    ends_with_us: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.leader.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let (true, Some(pid)) = (self.ends_with_us, pid) {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
}

impl Running {
    pub(super) async fn wait(&mut self) -> Result<Option<i32>> {
        match self {
            Self::Child(child) | Self::Group(Group { leader: child, .. }) => {
                let status = child.wait().await;
                status.map(|status| status.code()).map_err(|error| Error::failed(error.to_string()))
            }
            Self::Exec(exec) => exec.wait().await,
            Self::Carried(exit) => exit.wait().await,
        }
    }
}
