//! The command interface over a pair of byte streams: JSON-RPC 2.0, one object on each line.
//!
//! Parameters are given by name. Calls run side by side, and answers come as they are ready. A batch
//! is refused. After the end of the input the calls under way are answered, and every session ends.

use std::io;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinSet};

use super::{CallError, CommandInterface};
use crate::keys::KeyFilter;
use crate::{Error, Result};

/// The longest line: a block of 16 MiB in which every byte is written as `\u00XX`.
pub const MAX_LINE: usize = 96 * 1024 * 1024;

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

    fn answer(self, id: &Value) -> Value {
        let Self { code, message, data } = self;
        let mut error = json!({ "code": code, "message": message });
        if let (false, Some(error)) = (data.is_null(), error.as_object_mut()) {
            error.insert("data".into(), data);
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
                    data.insert("state".into(), state.to_string().into());
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
    let broken = |error: io::Error| Error::failed(format!("serving calls: {error}"));
    loop {
        tokio::select! {
            Some(ended) = calls.join_next() => written(ended).map_err(broken)?,
            line = lines.next(), if calls.len() < MAX_CALLS => {
                let Some(line) = line.map_err(broken)? else { break };
                let (interface, writer) = (Rc::clone(&interface), Rc::clone(&writer));
                calls.spawn_local(async move {
                    match answer(&interface, line).await {
                        Some(answer) => write(&writer, &answer).await,
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

async fn write(writer: &Mutex<impl AsyncWrite + Unpin>, answer: &Value) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut writer = writer.lock().await;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// The answer to a line, if it is to have one.
async fn answer(interface: &CommandInterface, line: Line) -> Option<Value> {
    let request = match line {
        Line::Whole(line) if line.trim_ascii().is_empty() => return None,
        Line::Whole(line) => serde_json::from_slice(&line),
        Line::TooLong => {
            let fault = Fault::new(INVALID_REQUEST, format!("a line is over {MAX_LINE} bytes"));
            return Some(fault.answer(&Value::Null));
        }
    };
    let request = match request {
        Ok(Value::Object(request)) => request,
        Ok(_) => {
            let fault = Fault::new(INVALID_REQUEST, "expected one object, got something else");
            return Some(fault.answer(&Value::Null));
        }
        // Where it is wrong, and not what it holds.
        Err(error) => {
            let text = format!("this is no JSON, from column {} on", error.column());
            return Some(Fault::new(PARSE_ERROR, text).answer(&Value::Null));
        }
    };
    let id = request.get("id").cloned();
    let result = call(interface, &request).await;
    // Without an id it is a notification, which is not answered.
    let id = id?;
    Some(match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => fault.answer(&id),
    })
}

async fn call(interface: &CommandInterface, request: &Map<String, Value>) -> Result<Value, Fault> {
    if request.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(Fault::new(INVALID_REQUEST, "expected \"jsonrpc\": \"2.0\""));
    }
    let Some(method) = request.get("method").and_then(Value::as_str) else {
        return Err(Fault::new(INVALID_REQUEST, "expected the name of a method"));
    };
    let none = Map::new();
    let params = match request.get("params") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(Fault::new(INVALID_PARAMS, "expected parameters by name")),
    };
    match method {
        "connectAgent" => {
            let id = match params.get("sessionId") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text(params, "sessionId")?),
            };
            Ok(json!(interface.connect_agent(id).await?))
        }
        "sendCommands" => {
            let (id, block) = (text(params, "sessionId")?, text(params, "block")?);
            Ok(json!({ "response": interface.send_commands(id, block).await? }))
        }
        "disconnectAgent" => {
            interface.disconnect_agent(text(params, "sessionId")?).await?;
            Ok(json!({}))
        }
        "exportPublicKeys" => {
            let filter = filter(params.get("filter"))?;
            Ok(json!(interface.export_public_keys(&filter).await?))
        }
        "checkVersion" => Ok(json!(interface.check_version(text(params, "version")?)?)),
        _ => Err(Fault::new(METHOD_NOT_FOUND, "there is no such method")),
    }
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
