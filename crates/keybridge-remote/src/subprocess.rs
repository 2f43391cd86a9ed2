//! Running a program of GnuPG: no shell, bounded output, bounded time.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// gpgconf prints some hundred bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// How long a program may take; without a person or a network it takes far less.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How long a program may take to end after SIGTERM.
const END_TIME: Duration = Duration::from_secs(2);

/// What a program printed before it ended.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl ProgramOutput {
    /// Whether there is no such program. In a target that QEMU emulates, starting a missing program succeeds,
    /// and the new process ends with the status that shells have for it.
    fn means_missing(&self) -> bool {
        self.status.code() == Some(127) && self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// A program with the messages of the C locale, which is killed when the result is dropped.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Where on the PATH a program is.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.is_file() && access(place, Access::EXEC_OK).is_ok())
}

/// Runs a short program to its end.
pub(crate) async fn run(command: &mut Command) -> io::Result<ProgramOutput> {
    run_with_limit(command, OUTPUT_LIMIT).await
}

/// The same for a program that prints more.
pub(crate) async fn run_with_limit(
    command: &mut Command,
    limit: usize,
) -> io::Result<ProgramOutput> {
    run_to_end(command, &[], limit).await
}

/// The same for a short program that reads something.
pub(crate) async fn run_with_input(
    command: &mut Command,
    input: &[u8],
) -> io::Result<ProgramOutput> {
    run_to_end(command.stdin(Stdio::piped()), input, OUTPUT_LIMIT).await
}

async fn run_to_end(
    command: &mut Command,
    input: &[u8],
    limit: usize,
) -> io::Result<ProgramOutput> {
    let mut child = command.spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program that doesn't read all of it says why by its status.
            let _ = stdin.write_all(input).await;
        }
    };
    let work = async {
        let ((), stdout, stderr) =
            tokio::join!(write, read_bounded(stdout, limit), read_bounded(stderr, OUTPUT_LIMIT));
        let status = child.wait().await?;
        let output = ProgramOutput { status, stdout: stdout?, stderr: stderr? };
        if output.means_missing() { Err(io::ErrorKind::NotFound.into()) } else { Ok(output) }
    };
    timeout(TIME_LIMIT, work)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "still running after 5 s")))
}

/// Ends a program, with SIGTERM first so that it removes its lock files.
pub(crate) async fn end(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid
        && kill_process(pid, Signal::TERM).is_ok()
        && timeout(END_TIME, child.wait()).await.is_ok()
    {
        return;
    }
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "can't end a program");
    }
}

/// Reads to the end and keeps the beginning.
pub(crate) async fn read_bounded(
    reader: Option<impl AsyncRead + Unpin>,
    limit: usize,
) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let Some(mut reader) = reader else { return Ok(kept) };
    let mut buffer = vec![0; 4096];
    loop {
        let count = reader.read(&mut buffer).await?;
        if count == 0 {
            return Ok(kept);
        }
        let room = limit.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

/// The last line that isn't empty, for a message.
pub(crate) fn last_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n')
        .rev()
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_program_is_recognised_where_starting_it_succeeds() {
        let missing = run(command(Path::new("sh")).args(["-c", "exit 127"])).await;
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        // A program that says something is there.
        let failed = run(command(Path::new("sh")).args(["-c", "echo no >&2; exit 127"])).await;
        assert_eq!(failed.unwrap().status.code(), Some(127));
    }
}
