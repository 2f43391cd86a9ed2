//! The one place that runs a program on the host for what it prints: no shell, and bounds on time and
//! output.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use keybridge_proto::printable;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::Error;

/// What is kept of a program's messages, for an error.
const MESSAGES: usize = 4 * 1024;

/// What a program did.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// The beginning of its messages.
    pub(crate) messages: Vec<u8>,
}

/// Why there is no output.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The program isn't there, or can't be run.
    NotStarted(io::Error),
    /// It printed too much, took too long, or its pipes broke.
    Failed(Error),
}

/// Runs a program to its end, with nobody to ask. Its own failure is for the caller to judge. The
/// program is killed when this is dropped.
pub(crate) async fn run(
    mut command: Command,
    limit: usize,
    time: Duration,
) -> Result<Output, RunError> {
    let name = {
        let program = std::path::Path::new(command.as_std().get_program());
        program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(RunError::NotStarted)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let (stdout, messages) = tokio::try_join!(
            // More than the bound is an error, so the program needs not be read to its end.
            async { read(stdout, limit).await },
            async { read_beginning(stderr, MESSAGES).await },
        )?;
        let status = child.wait().await?;
        Ok(Output { status, stdout, messages })
    };
    let text = match tokio::time::timeout(time, work).await {
        Ok(Ok(output)) => return Ok(output),
        Ok(Err(ReadError::Io(error))) => format!("running {name}: {error}"),
        Ok(Err(ReadError::TooMuch)) => {
            format!("expected at most {limit} bytes of output from {name}, got more")
        }
        Err(_) => format!("expected {name} to end within {} s, but it goes on", time.as_secs()),
    };
    Err(RunError::Failed(Error::failed(text)))
}

impl Output {
    /// The error of a program that failed, in its own words.
    pub(crate) fn error(&self, name: &str) -> Error {
        let text = String::from_utf8_lossy(&self.messages);
        // The last line is the one that says why.
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        Error::failed(format!("{name} failed ({}): {}", self.status, printable(last)))
    }
}

enum ReadError {
    Io(io::Error),
    TooMuch,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// All of the output, which may not be over `limit`.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(bound).read_to_end(&mut bytes).await?;
    if bytes.len() > limit { Err(ReadError::TooMuch) } else { Ok(bytes) }
}

/// The first bytes of the output; the rest is read and dropped, so that the program can go on.
async fn read_beginning(
    from: Option<impl AsyncRead + Unpin>,
    keep: usize,
) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let Some(mut from) = from else { return Ok(bytes) };
    (&mut from).take(u64::try_from(keep).unwrap_or(u64::MAX)).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(command: Command, time: Duration) -> String {
        match run(command, 1000, time).await.unwrap_err() {
            RunError::Failed(error) => error.message,
            RunError::NotStarted(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn output_over_the_bound_is_an_error() {
        let mut command = Command::new("/bin/cat");
        command.arg("/dev/zero");
        let message = failure(command, Duration::from_secs(30)).await;
        assert_eq!(message, "expected at most 1000 bytes of output from cat, got more");
    }

    #[tokio::test]
    async fn a_program_that_goes_on_is_an_error() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let message = failure(command, Duration::from_millis(1)).await;
        assert_eq!(message, "expected sleep to end within 0 s, but it goes on");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told_apart() {
        let result = run(Command::new("/nonexistent/x"), 1000, Duration::from_secs(30)).await;
        assert!(matches!(result, Err(RunError::NotStarted(_))));
    }
}
