//! What goes to and fro on standard input and output.

use std::rc::Rc;

use keybridge_link::{Input, Output};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use super::remote_processes::Processes;
use super::window::Window;
use crate::interface::lines::{Line, Lines};
use crate::{Error, Result};

/// The way to the editor. Lines leave in the order in which they were told.
#[derive(Clone)]
pub(super) struct Wire {
    lines: mpsc::UnboundedSender<String>,
    /// How many lines were told, and how many are written.
    told: Rc<watch::Sender<u64>>,
    written: watch::Receiver<u64>,
}

impl Wire {
    /// Begins to write what is told, from a task of this thread.
    pub(super) fn open() -> Result<Self> {
        let stdout = Output::open().map_err(|error| Error::failed(error.to_string()))?;
        let (lines, to_write) = mpsc::unbounded_channel();
        let (wrote, written) = watch::channel(0);
        tokio::task::spawn_local(write(to_write, stdout, wrote));
        Ok(Self { lines, told: Rc::new(watch::channel(0).0), written })
    }

    /// Tells something that is not answered. Whoever is gone needs not be told.
    pub(super) fn tell(&self, method: &str, params: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Waits until everything that was told so far is written.
    pub(super) async fn flushed(&self) {
        let told = *self.told.borrow();
        // An editor that is gone takes nothing, and then nothing is waited for.
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

/// What comes on standard input.
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

/// Takes what comes on standard input, to its end.
pub(super) async fn listen(input: Input, wire: Wire, processes: Rc<Processes>, window: Rc<Window>) {
    let mut lines = Lines::new(input);
    while let Ok(Some(line)) = lines.next().await {
        let Line::Whole(line) = line else {
            tracing::warn!("a line of the editor is too long");
            continue;
        };
        match serde_json::from_slice(&line) {
            Ok(incoming) => take(&wire, &processes, &window, incoming).await,
            // Where it is wrong, and not what it holds.
            Err(error) => {
                tracing::warn!(
                    "a line of the editor is no call, from column {} on",
                    error.column()
                );
            }
        }
    }
    processes.over().await;
    window.ask_stop();
}

async fn take(wire: &Wire, processes: &Processes, window: &Rc<Window>, incoming: Incoming) {
    let Incoming { id, call } = incoming;
    match call {
        Call::Output { process, data } => processes.output(process, &data).await,
        Call::Complaint { process, data } => processes.complaint(process, &data).await,
        Call::Exited { process, code } => processes.ended(process, code).await,
        Call::Stop {} => window.ask_stop(),
        Call::Sync { keys } => {
            let (wire, window) = (wire.clone(), Rc::clone(window));
            tokio::task::spawn_local(async move {
                wire.answer(&id, window.sync(keys).await);
            });
        }
    }
}
