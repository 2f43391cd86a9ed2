//! The helpers in the remote, whose bytes the editor carries.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, SimplexStream, WriteHalf, simplex};
use tokio::sync::{Mutex, watch};

use crate::editor::connection::EditorConnection;
use crate::target::{Ended, Exit, HelperRunner, RunningHelper};
use crate::{Error, Result};

/// What one message carries at most: 256 KiB of base64.
const CHUNK: usize = 192 * 1024;

/// How much of a helper's standard error is buffered.
const COMPLAINTS: usize = 16 * 1024;

/// The helpers that are running.
pub(crate) struct Processes {
    editor: EditorConnection,
    running: RefCell<HashMap<u64, Rc<Running>>>,
    last: Cell<u64>,
    /// The editor is gone.
    is_over: Cell<bool>,
}

/// Our ends of the streams of one helper.
struct Running {
    stdout: Mutex<Option<WriteHalf<SimplexStream>>>,
    stderr: Mutex<Option<WriteHalf<SimplexStream>>>,
    ended: watch::Sender<Ended>,
}

impl Processes {
    pub(crate) fn new(editor: EditorConnection) -> Self {
        Self { editor, running: RefCell::default(), last: Cell::new(0), is_over: Cell::new(false) }
    }

    /// A helper wrote this to its standard output.
    pub(crate) async fn output(&self, process: u64, data: &str) {
        if let Some(running) = self.running(process) {
            put(&running.stdout, data).await;
        }
    }

    /// A helper wrote this to its standard error.
    pub(crate) async fn complaint(&self, process: u64, data: &str) {
        if let Some(running) = self.running(process) {
            put(&running.stderr, data).await;
        }
    }

    /// A helper has ended, or could not be started.
    pub(crate) async fn ended(&self, process: u64, code: Option<i32>) {
        let running = self.running.borrow_mut().remove(&process);
        if let Some(running) = running {
            running.end(code).await;
        }
    }

    /// The editor is gone: ends all streams, and starts nothing any more.
    pub(crate) async fn over(&self) {
        self.is_over.set(true);
        let all: Vec<Rc<Running>> = self.running.take().into_values().collect();
        for running in all {
            running.end(None).await;
        }
    }

    fn running(&self, process: u64) -> Option<Rc<Running>> {
        self.running.borrow().get(&process).cloned()
    }
}

impl HelperRunner for Processes {
    fn start(&self, arguments: Vec<String>, outlives_us: bool) -> Result<RunningHelper> {
        if self.is_over.get() {
            return Err(Error::failed("the editor has closed the connection"));
        }
        let process = self.last.get() + 1;
        self.last.set(process);
        let (stdout, to_stdout) = simplex(CHUNK);
        let (stderr, to_stderr) = simplex(COMPLAINTS);
        let (from_stdin, stdin) = simplex(CHUNK);
        let (ended, exit) = watch::channel(Ended::NotYet);
        let running = Running {
            stdout: Mutex::new(Some(to_stdout)),
            stderr: Mutex::new(Some(to_stderr)),
            ended,
        };
        self.running.borrow_mut().insert(process, Rc::new(running));
        self.editor.tell("run", &json!({ "process": process, "arguments": arguments }));
        tokio::task::spawn_local(carry_input(self.editor.clone(), process, from_stdin));
        let end = || -> Box<dyn FnOnce()> {
            let editor = self.editor.clone();
            Box::new(move || editor.tell("end", &json!({ "process": process })))
        };
        let exit = Exit::new(exit, (!outlives_us).then(end));
        Ok(RunningHelper { stdin, stdout, stderr, exit })
    }
}

impl Running {
    async fn end(&self, code: Option<i32>) {
        for stream in [&self.stdout, &self.stderr] {
            if let Some(mut stream) = stream.lock().await.take() {
                let _ = stream.shutdown().await;
            }
        }
        self.ended.send_replace(Ended::With(code));
    }
}

/// Sends a helper's input to the editor, as much at once as there is.
async fn carry_input(editor: EditorConnection, process: u64, mut stdin: ReadHalf<SimplexStream>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
        let data = BASE64_STANDARD.encode(buffer.get(..count).unwrap_or_default());
        // Waits, so that the mux stops sending while the editor doesn't read.
        editor.tell("input", &json!({ "process": process, "data": data }));
        editor.flushed().await;
    }
    editor.tell("endInput", &json!({ "process": process }));
}

async fn put(stream: &Mutex<Option<WriteHalf<SimplexStream>>>, data: &str) {
    match (stream.lock().await.as_mut(), BASE64_STANDARD.decode(data)) {
        // An error means that the reader was dropped.
        (Some(stream), Ok(bytes)) => drop(stream.write_all(&bytes).await),
        (None, Ok(_)) => {}
        (_, Err(_)) => tracing::warn!("invalid base64 from the editor"),
    }
}
