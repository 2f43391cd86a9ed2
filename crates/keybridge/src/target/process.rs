//! A command that runs in a target.

use std::io::Cursor;
use std::pin::Pin;
use std::time::Duration;

use keybridge_proto::printable;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;

use super::container::Exec;
use super::editor::{Carried, Exit};

use crate::{Error, Result};

/// What a short command may write; a target is not trusted to be brief.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// What a short command may take; the longest writes the helper to a slow disk.
const TIME_LIMIT: Duration = Duration::from_mins(1);

async fn read_all(reader: Reader) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let read = reader.take(OUTPUT_LIMIT + 1).read_to_end(&mut all).await;
    read.map_err(|error| Error::failed(error.to_string()))?;
    check_size(&all)?;
    Ok(all)
}

fn check_size(read: &[u8]) -> Result<()> {
    if u64::try_from(read.len()).unwrap_or(u64::MAX) > OUTPUT_LIMIT {
        return Err(Error::failed("a command there says too much"));
    }
    Ok(())
}

/// Where the line ends that is the last of a head; the next look begins with the line `at` which this
/// one has ended.
fn end_of_head(read: &[u8], at: &mut usize, is_last: impl Fn(&[u8]) -> bool) -> Option<usize> {
    read.get(*at..)?.split_inclusive(|byte| *byte == b'\n').find_map(|line| {
        let is_whole = line.ends_with(b"\n");
        *at += if is_whole { line.len() } else { 0 };
        (is_whole && is_last(line)).then_some(*at)
    })
}

async fn in_time<T>(talk: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(TIME_LIMIT, talk).await.unwrap_or_else(|_| {
        let message = format!("a command there took longer than {} s", TIME_LIMIT.as_secs());
        Err(Error::failed(message))
    })
}

type Reader = Pin<Box<dyn AsyncRead>>;
type Writer = Pin<Box<dyn AsyncWrite>>;

/// The streams of a command that runs in a target, and its end.
pub struct Process {
    stdin: Writer,
    stdout: Reader,
    stderr: Reader,
    /// Held so that the command ends with us, unless it is to outlive us.
    running: Running,
}

enum Running {
    Child(Child),
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

    /// Reads what the command writes first, up to a line that ends that; then it goes on. One that ends
    /// before is judged as by [`Process::output`].
    pub(super) async fn head(
        mut self,
        is_last: impl Fn(&[u8]) -> bool,
    ) -> Result<(String, Option<Self>)> {
        let (mut read, mut at) = (Vec::new(), 0);
        let talk = async {
            loop {
                if let Some(end) = end_of_head(&read, &mut at, &is_last) {
                    return Ok(Some(end));
                }
                check_size(&read)?;
                match self.stdout.read_buf(&mut read).await {
                    Ok(0) => return Ok(None),
                    Ok(_) => {}
                    Err(error) => return Err(Error::failed(error.to_string())),
                }
            }
        };
        let end = in_time(talk).await?;
        let rest = read.split_off(end.unwrap_or_default());
        if !rest.is_empty() {
            self.stdout = Box::pin(Cursor::new(rest).chain(self.stdout));
        }
        match end {
            Some(_) => Ok((String::from_utf8_lossy(&read).into_owned(), Some(self))),
            None => Ok((self.output(b"").await?, None)),
        }
    }

    /// Writes `input`, waits for the end and gives back the output of a command that ended well.
    /// One that says too much, or takes too long, is given up.
    pub(super) async fn output(self, input: &[u8]) -> Result<String> {
        let Self { mut stdin, stdout, stderr, mut running } = self;
        let feed = async {
            // A command that doesn't read its input says itself what is wrong.
            let _ = stdin.write_all(input).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
        };
        let talk = async {
            let ((), out, complaint) = tokio::join!(feed, read_all(stdout), read_all(stderr));
            Ok::<_, Error>((out?, complaint?, running.wait().await?))
        };
        let (out, complaint, status) = in_time(talk).await?;
        if status.is_none_or(|code| code != 0) {
            let reason = complaint.trim_ascii();
            let reason = if reason.is_empty() { out.trim_ascii() } else { reason };
            // What a program says last is why it gave up.
            let reason = reason.rsplit(|byte| *byte == b'\n').next().unwrap_or(reason);
            return Err(Error::failed(printable(reason).to_string()));
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
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
            Running::Child(_) | Running::Carried(_) => None,
        }
    }

    /// Waits for the end; gives back the exit code, if there is one.
    pub async fn wait(&mut self) -> Result<Option<i32>> {
        self.running.wait().await
    }
}

impl Running {
    async fn wait(&mut self) -> Result<Option<i32>> {
        match self {
            Self::Child(child) => {
                let status = child.wait().await;
                status.map(|status| status.code()).map_err(|error| Error::failed(error.to_string()))
            }
            Self::Exec(exec) => exec.wait().await,
            Self::Carried(exit) => exit.wait().await,
        }
    }
}
