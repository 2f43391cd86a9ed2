//! Runs programs of GnuPG, git and systemd: with the messages of the C locale, and a short time.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use keybridge_link::{ProgramError, ProgramOutput, run_program};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// gpgconf prints some hundred bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// How long a program may take; without a person or a network it takes far less.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How long a program may take to end after SIGTERM.
const END_TIME: Duration = Duration::from_secs(2);

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
    places_on_path(program.as_ref()).next()
}

/// Every place of a program on the PATH, in the order in which the system tries them.
pub(crate) fn places_on_path(program: &OsStr) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let places = folders.into_iter().map(move |folder| folder.join(program));
    places.filter(|place| place.is_file() && access(place, Access::EXEC_OK).is_ok())
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
    run_to_end(command, None, limit).await
}

/// The same for a short program that reads something.
pub(crate) async fn run_with_input(
    command: &mut Command,
    input: &[u8],
) -> io::Result<ProgramOutput> {
    run_to_end(command, Some(input), OUTPUT_LIMIT).await
}

async fn run_to_end(
    command: &mut Command,
    input: Option<&[u8]>,
    limit: usize,
) -> io::Result<ProgramOutput> {
    match run_program(command, input, limit, TIME_LIMIT).await {
        Ok(output) if means_missing(&output) => Err(io::ErrorKind::NotFound.into()),
        Ok(output) => Ok(output),
        Err(ProgramError::NotStarted(error) | ProgramError::Pipe(error)) => Err(error),
        Err(error @ (ProgramError::TooMuch(_) | ProgramError::TooSlow(_))) => {
            Err(io::Error::other(error))
        }
    }
}

/// Whether there is no such program. In a target that QEMU emulates, starting a missing program succeeds,
/// and the new process ends with the status that shells have for it.
fn means_missing(output: &ProgramOutput) -> bool {
    output.status.code() == Some(127) && output.stdout.is_empty() && output.stderr.is_empty()
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
