//! Runs a program to its end: no shell, and limits on time and output.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Command;

/// How much of a program's standard error is kept, for an error message and for gpg's status.
const STDERR_LIMIT: usize = 16 * 1024;

/// The result of a program that ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// All that it printed.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program doesn't exist, or can't be run.
    #[error(transparent)]
    NotStarted(io::Error),
    /// Its pipes failed.
    #[error(transparent)]
    Pipe(#[from] io::Error),
    /// It printed more than so many bytes.
    #[error("it printed more than {0} bytes")]
    TooMuch(usize),
    /// It took longer than this.
    #[error("it didn't end within {} s", .0.as_secs())]
    TooSlow(Duration),
}

/// Runs a program. The caller looks at its exit status. Dropping the future kills the program.
pub async fn run_program(
    command: &mut Command,
    input: Option<&[u8]>,
    limit: usize,
    time: Duration,
) -> Result<ProgramOutput, ProgramError> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(ProgramError::NotStarted)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        let (stdout, stderr, ()) = tokio::try_join!(
            // Output over the limit is an error, so there is no need to read all of it.
            async { read(stdout, limit).await },
            async { Ok(read_beginning(stderr, STDERR_LIMIT).await?) },
            async {
                write(stdin, input.unwrap_or_default()).await;
                Ok(())
            },
        )?;
        let status = child.wait().await?;
        Ok(ProgramOutput { status, stdout, stderr })
    };
    let ended = tokio::time::timeout(time, work).await;
    ended.unwrap_or(Err(ProgramError::TooSlow(time)))
}

/// Writes the input, and closes it. A program that doesn't read all of it says why in its own words.
async fn write(to: Option<impl AsyncWrite + Unpin>, input: &[u8]) {
    let Some(mut to) = to else { return };
    let _ = to.write_all(input).await;
    let _ = to.shutdown().await;
}

/// All of the output, up to `limit`.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ProgramError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(bound).read_to_end(&mut bytes).await?;
    if bytes.len() > limit { Err(ProgramError::TooMuch(limit)) } else { Ok(bytes) }
}

/// The first bytes of a program's output; the rest is read and dropped, so that it isn't blocked.
pub async fn read_beginning(
    from: Option<impl AsyncRead + Unpin>,
    keep: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut from) = from else { return Ok(bytes) };
    (&mut from).take(u64::try_from(keep).unwrap_or(u64::MAX)).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}
