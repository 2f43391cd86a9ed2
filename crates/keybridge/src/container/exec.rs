//! A command in a container, with its three streams.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::ExecInspectResponse;
use futures_core::Stream;
use tokio::io::{AsyncRead, ReadBuf};

use crate::engine::error::engine_message;
use crate::target::{Process, TargetCommand};
use crate::{Error, Result};

/// How long the engine may take to answer, which it does before it starts the command.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// How much the engine's stream is read ahead.
const READ_AHEAD: usize = 64 * 1024;

/// How much unread standard error is kept.
const STDERR_LIMIT: usize = 16 * 1024;

/// The beginning of a message that Podman adds after the reason why a command could not be started.
const PODMAN_STREAMS_LOST: &[u8] = b"Error: read unixpacket ";

/// Starts a command as a user of the container.
pub(crate) async fn start(
    engine: &Docker,
    container: &str,
    user: Option<&str>,
    command: &TargetCommand,
) -> std::result::Result<Process, EngineError> {
    let words = command.words.iter().map(|word| word.to_string_lossy().into_owned());
    let env = command
        .env
        .iter()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(words.collect()),
        env: Some(env.collect()),
        user: user.map(str::to_owned),
        ..CreateExecOptions::default()
    };
    let id = engine.create_exec(container, options).await?.id;
    let start =
        StartExecOptions { output_capacity: Some(READ_AHEAD), ..StartExecOptions::default() };
    let started = tokio::time::timeout(ANSWER_TIME, engine.start_exec(&id, Some(start))).await;
    let (output, input) = match started {
        Ok(Ok(StartExecResults::Attached { output, input })) => (output, input),
        Ok(Ok(StartExecResults::Detached)) => {
            let error = "the engine did not attach to the command".to_owned();
            return Err(EngineError::DockerStreamError { error });
        }
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            let why = format!("no answer within {} s", ANSWER_TIME.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why).into());
        }
    };
    let output = Rc::new(RefCell::new(Output::new(output)));
    let (stdout, stderr) = (Stdout(Rc::clone(&output)), Stderr(output));
    let exec = Exec { engine: engine.clone(), id };
    Ok(Process::of_exec(input, Box::pin(stdout), Box::pin(stderr), exec))
}

/// A command that an engine runs.
#[derive(Debug)]
pub(crate) struct Exec {
    engine: Docker,
    id: String,
}

impl Exec {
    async fn inspect(&self) -> Result<ExecInspectResponse> {
        self.engine.inspect_exec(&self.id).await.map_err(|error| {
            let message = engine_message(&error);
            Error::failed(format!("asking the engine about a command: {message}"))
        })
    }

    /// Waits for the end of a command whose streams have ended; returns its exit code.
    pub(crate) async fn wait(&mut self) -> Result<Option<i32>> {
        // The engine records the exit code a moment after it has closed the streams.
        let mut pause = Duration::from_millis(2);
        loop {
            let state = self.inspect().await?;
            match state.exit_code {
                Some(code) if state.running != Some(true) => return Ok(i32::try_from(code).ok()),
                Some(_) | None if pause > LONGEST_PAUSE => return Ok(None),
                Some(_) | None => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }
}

/// A command that still runs so long after its streams have ended has detached itself.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

type Frames = Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, EngineError>>>>;

/// The engine's one stream, split into standard output and standard error. Reading standard output drives
/// both.
struct Output {
    frames: Frames,
    /// Received, but not read yet.
    stdout: bytes::Bytes,
    stderr: VecDeque<u8>,
    stderr_reader: Option<Waker>,
    ended: bool,
}

impl Output {
    fn new(frames: Frames) -> Self {
        Self {
            frames,
            stdout: bytes::Bytes::new(),
            stderr: VecDeque::new(),
            stderr_reader: None,
            ended: false,
        }
    }

    /// Reads frames until there is standard output, or the end.
    fn poll_stdout(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.stdout.is_empty() && !self.ended {
            match std::task::ready!(self.frames.as_mut().poll_next(context)) {
                Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => {
                    self.stdout = message;
                }
                Some(Ok(LogOutput::StdErr { message }))
                    if message.starts_with(PODMAN_STREAMS_LOST) => {}
                Some(Ok(LogOutput::StdErr { message })) => self.keep_stderr(&message),
                Some(Ok(LogOutput::StdIn { .. })) => {}
                Some(Err(error)) => {
                    self.end();
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                None => self.end(),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps the end of standard error.
    fn keep_stderr(&mut self, message: &[u8]) {
        self.stderr.extend(message);
        let surplus = self.stderr.len().saturating_sub(STDERR_LIMIT);
        self.stderr.drain(..surplus);
        self.wake_stderr();
    }

    fn end(&mut self) {
        self.ended = true;
        self.wake_stderr();
    }

    fn wake_stderr(&mut self) {
        if let Some(reader) = self.stderr_reader.take() {
            reader.wake();
        }
    }
}

struct Stdout(Rc<RefCell<Output>>);

impl AsyncRead for Stdout {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut output = self.0.borrow_mut();
        std::task::ready!(output.poll_stdout(context))?;
        let count = output.stdout.len().min(buffer.remaining());
        buffer.put_slice(&output.stdout.split_to(count));
        Poll::Ready(Ok(()))
    }
}

struct Stderr(Rc<RefCell<Output>>);

impl AsyncRead for Stderr {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut output = self.0.borrow_mut();
        if output.stderr.is_empty() && !output.ended {
            output.stderr_reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = output.stderr.len().min(buffer.remaining());
        let bytes: Vec<u8> = output.stderr.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}
