//! What goes to and fro on standard input and output.

use std::rc::Rc;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{
    AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, Stdout, WriteHalf, duplex,
    simplex, split,
};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::window::Window;
use crate::interface::rpc::{Line, Lines};
use crate::lend::HelperLog;
use crate::report::Event;
use crate::{Error, Result};

/// What one `bytes` carries at most: 256 KiB of base64.
const CHUNK: usize = 192 * 1024;

/// What is held of the helper's messages until they are read.
const COMPLAINTS: usize = 16 * 1024;

/// The way to whoever carries the bytes.
#[derive(Clone)]
pub(super) struct Wire(Rc<Mutex<Stdout>>);

impl Default for Wire {
    fn default() -> Self {
        Self(Rc::new(Mutex::new(tokio::io::stdout())))
    }
}

impl Wire {
    /// Tells something that is not answered. Whoever is gone needs not be told.
    pub(super) async fn tell(&self, method: &str, params: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Does a step, and tells of it.
    pub(super) async fn step<T>(
        &self,
        doing: &str,
        step: impl Future<Output = Result<(T, String)>>,
    ) -> Result<T> {
        let doing = doing.to_owned();
        self.tell("step", &Event::Begun { doing: doing.clone() }).await;
        let start = Instant::now();
        match step.await {
            Ok((value, came)) => {
                let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.tell("step", &Event::Done { doing, came, millis }).await;
                Ok(value)
            }
            Err(error) => {
                self.tell("step", &Event::Failed { doing }).await;
                Err(error)
            }
        }
    }

    /// Tells what is worth knowing and stops nothing.
    pub(super) async fn warn(&self, text: &str) {
        self.tell("step", &Event::Warning { text: text.to_owned() }).await;
    }

    async fn answer(&self, id: &Value, result: Result<Value>) {
        let answer = match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(Error { message, hints, .. }) => {
                let error =
                    json!({ "code": -32000, "message": message, "data": { "hints": hints } });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.send(&answer).await;
    }

    async fn send(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        let mut stdout = self.0.lock().await;
        if stdout.write_all(line.as_bytes()).await.is_ok() {
            let _ = stdout.flush().await;
        }
    }
}

/// The helper's streams, as the bridge has them from a target of any kind.
pub(super) struct HelperStreams {
    pub(super) output: ReadHalf<DuplexStream>,
    pub(super) input: WriteHalf<DuplexStream>,
    pub(super) log: HelperLog,
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
    /// What the helper wrote to its standard output.
    Bytes { data: String },
    /// What it wrote to its standard error.
    Complaint { data: String },
    /// Its process has ended.
    HelperEnded {},
    /// The bridge is to end.
    Stop {},
    /// Public keys are to be sent again.
    Sync {
        #[serde(default)]
        keys: Option<Vec<String>>,
    },
}

/// Takes what comes on standard input, and tells what is for the helper.
pub(super) fn listen(wire: Wire, window: Rc<Window>) -> (HelperStreams, JoinHandle<()>) {
    let (ours, theirs) = duplex(CHUNK);
    let (output, input) = split(ours);
    let (from_mux, to_mux) = split(theirs);
    let (complaints, complain) = simplex(COMPLAINTS);
    let log = HelperLog::follow(complaints);
    tokio::task::spawn_local(carry(wire.clone(), from_mux));
    let task = tokio::task::spawn_local(async move {
        take(&wire, &window, to_mux, complain).await;
        // Whoever carries the bytes is gone, and the helper with them.
        window.ask_stop();
    });
    (HelperStreams { output, input, log }, task)
}

/// Tells what the mux writes, as much at once as there is.
async fn carry(wire: Wire, mut from_mux: ReadHalf<DuplexStream>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from_mux.read(&mut buffer).await {
        let data = BASE64_STANDARD.encode(buffer.get(..count).unwrap_or_default());
        wire.tell("bytes", &json!({ "data": data })).await;
    }
}

async fn take(
    wire: &Wire,
    window: &Rc<Window>,
    to_mux: WriteHalf<DuplexStream>,
    complain: WriteHalf<tokio::io::SimplexStream>,
) {
    let (mut to_mux, mut complain) = (Some(to_mux), Some(complain));
    let mut lines = Lines::new(tokio::io::stdin());
    while let Ok(Some(line)) = lines.next().await {
        let Line::Whole(line) = line else {
            tracing::warn!("a line of the input is too long");
            continue;
        };
        let Incoming { id, call } = match serde_json::from_slice(&line) {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!("a line of the input is no call, from column {} on", error.column());
                continue;
            }
        };
        match call {
            Call::Bytes { data } if window.expects_bytes() => put(to_mux.as_mut(), &data).await,
            Call::Bytes { .. } => tracing::warn!("bytes came before there is a helper"),
            Call::Complaint { data } => put(complain.as_mut(), &data).await,
            Call::HelperEnded {} => {
                end(to_mux.take()).await;
                end(complain.take()).await;
            }
            Call::Stop {} => window.ask_stop(),
            Call::Sync { keys } => {
                let (wire, window) = (wire.clone(), Rc::clone(window));
                tokio::task::spawn_local(async move {
                    wire.answer(&id, window.sync(keys).await).await;
                });
            }
        }
    }
    end(to_mux).await;
}

async fn put(stream: Option<&mut (impl AsyncWrite + Unpin)>, data: &str) {
    match (stream, BASE64_STANDARD.decode(data)) {
        // A bridge that has ended takes nothing, and says so itself.
        (Some(stream), Ok(bytes)) => drop(stream.write_all(&bytes).await),
        (None, Ok(_)) => {}
        (_, Err(_)) => tracing::warn!("bytes of the input are no base64"),
    }
}

async fn end(stream: Option<impl AsyncWrite + Unpin>) {
    if let Some(mut stream) = stream {
        let _ = stream.shutdown().await;
    }
}
