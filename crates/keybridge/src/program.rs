//! Runs a program on the host and collects its output; an error names the program.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use keybridge_link::{ProgramError, ProgramOutput, run_program};
use keybridge_proto::{last_line, printable};
use tokio::process::Command;

use crate::Error;
use crate::platform::hide_window;

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
    command: Command,
    limit: usize,
    time: Duration,
) -> Result<Output, RunError> {
    // It is a part of many others, and large.
    Box::pin(run_with(command, None, limit, time)).await
}

/// The same with input.
pub(crate) async fn run_with(
    mut command: Command,
    input: Option<&[u8]>,
    limit: usize,
    time: Duration,
) -> Result<Output, RunError> {
    hide_window(&mut command);
    let run = run_program(&mut command, input, limit, time).await;
    let name = || {
        let program = Path::new(command.as_std().get_program());
        program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()
    };
    Err(match run {
        Ok(ProgramOutput { status, stdout, stderr: messages }) => {
            return Ok(Output { status, stdout, messages });
        }
        Err(ProgramError::NotStarted(error)) => RunError::NotStarted(error),
        Err(ProgramError::Pipe(error)) => RunError::Failed(
            Error::failed(format!("can't read the output of {}", name())).caused_by(error),
        ),
        Err(ProgramError::TooMuch(limit)) => {
            RunError::Failed(Error::failed(format!("{} printed more than {limit} bytes", name())))
        }
        Err(ProgramError::TooSlow(time)) => {
            let seconds = time.as_secs();
            RunError::Failed(Error::failed(format!("{} didn't end within {seconds} s", name())))
        }
    })
}

impl Output {
    /// The error for a program that failed, with the last line of its standard error.
    pub(crate) fn error(&self, name: &str) -> Error {
        let last = match last_line(&self.messages) {
            b"" => b"no error message",
            last => last,
        };
        Error::failed(format!("{name} failed ({}): {}", self.status, printable(last)))
    }
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
