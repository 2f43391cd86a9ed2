//! The connection to the editor: JSON-RPC messages on standard input and output.

use std::rc::Rc;

use keybridge_link::{Input, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use crate::editor::remote_processes::Processes;
use crate::editor::window::Window;
use crate::interface::lines::{Line, Lines};
use crate::{Error, Result};

/// Sends messages to the editor, in order.
#[derive(Clone)]
pub(crate) struct EditorConnection {
    lines: mpsc::UnboundedSender<String>,
    /// How many messages were queued, and how many are written.
    told: Rc<watch::Sender<u64>>,
    written: watch::Receiver<u64>,
}

impl EditorConnection {
    /// Starts a task on this thread that writes the messages.
    pub(crate) fn open() -> Result<Self> {
        let stdout = Output::open().map_err(|error| Error::failed(error.to_string()))?;
        let (lines, to_write) = mpsc::unbounded_channel();
        let (wrote, written) = watch::channel(0);
        tokio::task::spawn_local(write(to_write, stdout, wrote));
        Ok(Self { lines, told: Rc::new(watch::channel(0).0), written })
    }

    /// Sends a notification. It is dropped if the editor is gone.
    pub(crate) fn tell(&self, method: &str, params: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Waits until all messages so far are written.
    pub(crate) async fn flushed(&self) {
        let told = *self.told.borrow();
        // The writer is gone if the editor is. Then there is nothing to wait for.
        let _ = self.written.clone().wait_for(|written| *written >= told).await;
    }

    fn answer(&self, id: &Value, result: Result<Value>) {
        let answer = match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(Error { kind, message, hints, .. }) => {
                let data = json!({ "kind": kind, "hints": hints });
                let error = json!({ "code": -32000, "message": message, "data": data });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.send(&answer);
    }

    fn send(&self, message: &Value) {
        if self.lines.send(format!("{message}\n")).is_ok() {
            self.told.send_modify(|told| *told += 1);
        }
    }
}

async fn write(
    mut lines: mpsc::UnboundedReceiver<String>,
    mut stdout: Output,
    wrote: watch::Sender<u64>,
) {
    while let Some(line) = lines.recv().await {
        if stdout.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        wrote.send_modify(|count| *count += 1);
    }
}

/// A message from the editor.
#[derive(Deserialize)]
struct Incoming {
    #[serde(default)]
    id: Value,
    #[serde(flatten)]
    call: Call,
}

#[derive(Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "camelCase")]
enum Call {
    /// What a process wrote to its standard output.
    Output { process: u64, data: String },
    /// What it wrote to its standard error.
    Complaint { process: u64, data: String },
    /// It has ended, or could not be started.
    Exited { process: u64, code: Option<i32> },
    /// The bridge is to end.
    Stop {},
    /// Public keys are to be sent again.
    Sync {
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
}

/// Handles the editor's messages until standard input ends.
pub(crate) async fn listen(
    input: Input,
    editor: EditorConnection,
    processes: Rc<Processes>,
    window: Rc<Window>,
) {
    let mut lines = Lines::new(input);
    while let Ok(Some(line)) = lines.next().await {
        let Line::Whole(line) = line else {
            tracing::warn!("a line from the editor is too long");
            continue;
        };
        match serde_json::from_slice(&line) {
            Ok(incoming) => take(&editor, &processes, &window, incoming).await,
            // Its position, not its content, which may be secret.
            Err(error) => {
                tracing::warn!("invalid message from the editor at column {}", error.column());
            }
        }
    }
    processes.over().await;
    window.ask_stop();
}

async fn take(
    editor: &EditorConnection,
    processes: &Processes,
    window: &Rc<Window>,
    incoming: Incoming,
) {
    let Incoming { id, call } = incoming;
    match call {
        Call::Output { process, data } => processes.output(process, &data).await,
        Call::Complaint { process, data } => processes.complaint(process, &data).await,
        Call::Exited { process, code } => processes.ended(process, code).await,
        Call::Stop {} => window.ask_stop(),
        Call::Sync { keys } => {
            let (editor, window) = (editor.clone(), Rc::clone(window));
            tokio::task::spawn_local(async move {
                editor.answer(&id, window.sync(keys).await);
            });
        }
    }
}
