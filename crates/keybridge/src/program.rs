//! Runs a program on the host and collects its output: no shell, and limits on time and output.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use keybridge_proto::printable;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::Error;
use crate::platform::hide_window;

/// How much of a program's standard error is kept, for an error message.
const MESSAGES: usize = 4 * 1024;

/// The result of a program that ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub(crate) messages: Vec<u8>,
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The program doesn't exist, or can't be run.
    NotStarted(io::Error),
    /// It printed too much, took too long, or its pipes failed.
    Failed(Error),
}

/// Runs a program to its end, without input. The caller looks at its exit status. Dropping the future
/// kills the program.
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
    hide_window(&mut command);
    let mut child = command.spawn().map_err(RunError::NotStarted)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let (stdout, messages) = tokio::try_join!(
            // Output over the limit is an error, so there is no need to read all of it.
            async { read(stdout, limit).await },
            async { read_beginning(stderr, MESSAGES).await },
        )?;
        let status = child.wait().await?;
        Ok(Output { status, stdout, messages })
    };
    let error = match tokio::time::timeout(time, work).await {
        Ok(Ok(output)) => return Ok(output),
        Ok(Err(ReadError::Io(error))) => {
            Error::failed(format!("can't read the output of {name}")).caused_by(error)
        }
        Ok(Err(ReadError::TooMuch)) => {
            Error::failed(format!("{name} printed more than {limit} bytes"))
        }
        Err(_) => Error::failed(format!("{name} didn't end within {} s", time.as_secs())),
    };
    Err(RunError::Failed(error))
}

impl Output {
    /// The error for a program that failed, with the last line of its standard error.
    pub(crate) fn error(&self, name: &str) -> Error {
        let text = String::from_utf8_lossy(&self.messages);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let last = last.unwrap_or("no error message");
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

/// All of the output, up to `limit`.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(bound).read_to_end(&mut bytes).await?;
    if bytes.len() > limit { Err(ReadError::TooMuch) } else { Ok(bytes) }
}

/// The first bytes of the output; the rest is read and dropped, so that the program isn't blocked.
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

    crate::platform::tests_on_unix! {
    async fn failure(command: Command, time: Duration) -> String {
        match run(command, 1000, time).await.unwrap_err() {
            RunError::Failed(error) => error.message,
            RunError::NotStarted(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn output_over_the_limit_is_an_error() {
        let mut command = Command::new("/bin/cat");
        command.arg("/dev/zero");
        let message = failure(command, Duration::from_secs(30)).await;
        assert_eq!(message, "cat printed more than 1000 bytes");
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_an_error() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let message = failure(command, Duration::from_millis(1)).await;
        assert_eq!(message, "sleep didn't end within 0 s");
    }
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_told_apart() {
        let result = run(Command::new("/nonexistent/x"), 1000, Duration::from_secs(30)).await;
        assert!(matches!(result, Err(RunError::NotStarted(_))));
    }
}
