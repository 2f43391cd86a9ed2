//! The command interface over a pair of byte streams: JSON-RPC 2.0, one object on each line.
//!
//! Parameters are given by name. Calls run side by side, and answers come as they are ready. A batch
//! is refused. After the end of the input the calls under way are answered, and every session ends.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::budget::Response;
use super::{CallError, CommandInterface, ExportedKeys, latin1};
use crate::keys::KeyFilter;
use crate::{Error, Result};

/// The longest line: a block of 12 MiB in which every byte takes two.
pub const MAX_LINE: usize = 24 * 1024 * 1024;

/// What the lines of all calls under way may have together; small ones don't count.
const REQUESTS: usize = MAX_LINE;

/// A line that doesn't count.
const SMALL_LINE: usize = 16 * 1024;

/// How many bytes of lines are counted as one.
const UNIT: usize = 1024;

/// Calls at once. A session has two at most, the second of them its end; the rest is for exports and for
/// calls that are rejected.
const MAX_CALLS: usize = 512;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// A call that was understood and rejected; `data.kind` says why.
const REJECTED: i32 = -32000;

/// Why a request gets an error.
struct Fault {
    code: i32,
    message: String,
    data: Value,
}

impl Fault {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Value::Null }
    }

    fn answer(&self, id: &Value) -> Value {
        let Self { code, message, data } = self;
        let mut error = json!({ "code": code, "message": message });
        if let (false, Some(error)) = (data.is_null(), error.as_object_mut()) {
            error.insert("data".into(), data.clone());
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        let mut data = json!({ "kind": error.word() });
        if let Some(data) = data.as_object_mut() {
            match &error {
                CallError::NotReady { state, .. } => {
                    data.insert("state".into(), format!("{state:?}").into());
                }
                CallError::Keys(error) => {
                    data.insert("hints".into(), error.hints.clone().into());
                }
                CallError::MalformedId { .. }
                | CallError::UnknownId(_)
                | CallError::IdInUse(_)
                | CallError::TooManySessions { .. }
                | CallError::Ended { .. }
                | CallError::ResponseTooLarge
                | CallError::NotLatin1 { .. }
                | CallError::MalformedVersion => {}
            }
        }
        Self { code: REJECTED, message: error.to_string(), data }
    }
}

/// Serves calls until the input ends, or the output breaks. To be called in a `LocalSet`.
pub async fn serve(
    interface: CommandInterface,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin + 'static,
) -> Result<()> {
    let interface = Rc::new(interface);
    let writer = Rc::new(Mutex::new(writer));
    let mut lines = Lines::new(reader);
    let mut calls = JoinSet::new();
    let requests = Arc::new(Semaphore::new(REQUESTS / UNIT));
    let broken = |error: io::Error| Error::failed(format!("serving calls: {error}"));
    loop {
        tokio::select! {
            Some(ended) = calls.join_next() => written(ended).map_err(broken)?,
            line = lines.next(), if calls.len() < MAX_CALLS => {
                let Some(line) = line.map_err(broken)? else { break };
                let (interface, writer) = (Rc::clone(&interface), Rc::clone(&writer));
                let room = hold(&requests, &line);
                calls.spawn_local(async move {
                    let answer = match &room {
                        Ok(_) => answer(&interface, line).await,
                        Err(fault) => Some(fault.answer(&id_of(&line)).into()),
                    };
                    drop(room);
                    match answer {
                        Some(answer) => answer.write(&writer).await,
                        None => Ok(()),
                    }
                });
            }
        }
    }
    while let Some(ended) = calls.join_next().await {
        written(ended).map_err(broken)?;
    }
    Ok(())
}

/// How the writing of an answer went. A call that panicked is a bug that is shown elsewhere.
fn written(ended: Result<io::Result<()>, JoinError>) -> io::Result<()> {
    ended.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The id of a call that isn't made; null if it has none.
fn id_of(line: &Line) -> Value {
    #[derive(Deserialize)]
    struct Head {
        id: Value,
    }
    match line {
        // The rest of it isn't held.
        Line::Whole(bytes) => serde_json::from_slice(bytes).map_or(Value::Null, |Head { id }| id),
        Line::TooLong => Value::Null,
    }
}

/// Counts a line among those of the calls under way, unless those are too many.
fn hold(requests: &Arc<Semaphore>, line: &Line) -> Result<Option<OwnedSemaphorePermit>, Fault> {
    let size = match line {
        Line::Whole(bytes) => bytes.len(),
        Line::TooLong => 0,
    };
    if size <= SMALL_LINE {
        return Ok(None);
    }
    let units = u32::try_from(size / UNIT).unwrap_or(u32::MAX);
    Arc::clone(requests).try_acquire_many_owned(units).map(Some).map_err(|_| {
        Fault::new(REJECTED, format!("the calls under way have over {REQUESTS} bytes"))
    })
}

/// What is written for a call.
enum Reply {
    Whole(Value),
    /// An export. There is one at a time, until it is written.
    Export(Value, #[allow(dead_code, reason = "held, not read")] OwnedMutexGuard<()>),
    /// One that is large, and becomes JSON as it is written.
    Response {
        id: Value,
        response: Response,
    },
}

impl From<Value> for Reply {
    fn from(answer: Value) -> Self {
        Self::Whole(answer)
    }
}

impl Reply {
    async fn write(self, writer: &Mutex<impl AsyncWrite + Unpin>) -> io::Result<()> {
        let mut writer = writer.lock().await;
        match self {
            Self::Whole(ref answer) | Self::Export(ref answer, _) => {
                writer.write_all(&serde_json::to_vec(answer)?).await?;
            }
            Self::Response { id, response } => {
                let id = serde_json::to_string(&id)?;
                let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"response":""#);
                writer.write_all(head.as_bytes()).await?;
                for piece in response.pieces() {
                    let text = serde_json::to_string(&latin1::to_text([piece]))?;
                    let inner = text.get(1..text.len() - 1).unwrap_or_default();
                    writer.write_all(inner.as_bytes()).await?;
                }
                writer.write_all(br#""}}"#).await?;
            }
        }
        writer.write_all(b"\n").await?;
        writer.flush().await
    }
}

/// What a call came to.
enum Outcome {
    Value(Value),
    Export(ExportedKeys, OwnedMutexGuard<()>),
    Response(Response),
}

/// The answer to a line, if it is to have one.
async fn answer(interface: &CommandInterface, line: Line) -> Option<Reply> {
    let refuse = |fault: Fault| Some(fault.answer(&Value::Null).into());
    let request = match line {
        Line::Whole(line) if line.trim_ascii().is_empty() => return None,
        Line::Whole(line) => serde_json::from_slice(&line),
        Line::TooLong => {
            let text = format!("a line is over {MAX_LINE} bytes");
            return refuse(Fault::new(INVALID_REQUEST, text));
        }
    };
    let mut request = match request {
        Ok(Value::Object(request)) => request,
        Ok(_) => {
            let text = "expected one object, got something else";
            return refuse(Fault::new(INVALID_REQUEST, text));
        }
        // Where it is wrong, and not what it holds.
        Err(error) => {
            let text = format!("invalid JSON at column {}", error.column());
            return refuse(Fault::new(PARSE_ERROR, text));
        }
    };
    let id = request.get("id").cloned();
    let result = call(interface, &mut request).await;
    // Without an id it is a notification, which is not answered.
    let id = id?;
    let good = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    Some(match result {
        Ok(Outcome::Value(result)) => Reply::Whole(good(result)),
        Ok(Outcome::Export(keys, turn)) => Reply::Export(good(json!(keys)), turn),
        Ok(Outcome::Response(response)) => Reply::Response { id, response },
        Err(fault) => Reply::Whole(fault.answer(&id)),
    })
}

async fn call(
    interface: &CommandInterface,
    request: &mut Map<String, Value>,
) -> Result<Outcome, Fault> {
    if request.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(Fault::new(INVALID_REQUEST, "expected \"jsonrpc\": \"2.0\""));
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return Err(Fault::new(INVALID_REQUEST, "expected the name of a method"));
    };
    let params = match request.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(Fault::new(INVALID_PARAMS, "expected parameters by name")),
    };
    let value = match method.as_str() {
        "connectAgent" => {
            let id = match params.get("sessionId") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text(&params, "sessionId")?),
            };
            json!(interface.connect_agent(id).await?)
        }
        "sendCommands" => {
            let id = text(&params, "sessionId")?.to_owned();
            let block = latin1::to_bytes(text(&params, "block")?)?;
            // Not held twice while the agent works.
            drop(params);
            return Ok(Outcome::Response(interface.send_block(&id, block).await?));
        }
        "disconnectAgent" => {
            interface.disconnect_agent(text(&params, "sessionId")?).await?;
            json!({})
        }
        "exportPublicKeys" => {
            let filter = filter(params.get("filter"))?;
            let turn = interface.export_turn().await;
            return Ok(Outcome::Export(interface.export_public_keys(&filter).await?, turn));
        }
        "checkVersion" => json!(interface.check_version(text(&params, "version")?)?),
        _ => return Err(Fault::new(METHOD_NOT_FOUND, "there is no such method")),
    };
    Ok(Outcome::Value(value))
}

fn text<'a>(params: &'a Map<String, Value>, name: &str) -> Result<&'a str, Fault> {
    params
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| Fault::new(INVALID_PARAMS, format!("expected {name}, a string")))
}

/// `all`, `pairs`, a key, or a list of keys. A key of a list is taken as it is, commas and all.
fn filter(value: Option<&Value>) -> Result<KeyFilter, Fault> {
    let fault = || Fault::new(INVALID_PARAMS, "expected filter, a string or a list of strings");
    match value {
        Some(Value::String(text)) => Ok(match text.as_str() {
            "all" => KeyFilter::All,
            "pairs" => KeyFilter::Pairs,
            key => KeyFilter::of_words([key]),
        }),
        Some(Value::Array(words)) => {
            let words = words.iter().map(|word| word.as_str().ok_or_else(fault));
            Ok(KeyFilter::of_words(words.collect::<Result<Vec<_>, _>>()?))
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Err(fault())
        }
    }
}

/// A line of the input.
pub(crate) enum Line {
    /// One without its end.
    Whole(Vec<u8>),
    /// One over [`MAX_LINE`], which was dropped.
    TooLong,
}

/// Cuts the input into lines.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// What came of the line under way; kept here so that waiting for more can be cancelled.
    line: Vec<u8>,
    too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, reader),
            line: Vec::new(),
            too_long: false,
        }
    }

    /// The next line, without its end; a last one may lack it. It may be cancelled.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let came = self.reader.fill_buf().await?;
            if came.is_empty() {
                let is_rest = self.too_long || !self.line.is_empty();
                return Ok(is_rest.then(|| self.take()));
            }
            let end = came.iter().position(|&byte| byte == b'\n');
            let part = came.get(..end.unwrap_or(came.len())).unwrap_or_default();
            if self.line.len() + part.len() > MAX_LINE {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let count = part.len() + usize::from(end.is_some());
            self.reader.consume(count);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) { Line::TooLong } else { Line::Whole(line) }
    }
}
