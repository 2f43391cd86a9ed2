//! The command interface over a pair of byte streams: JSON-RPC 2.0, one object on each line.
//!
//! Parameters are given by name. Calls run concurrently, and each is answered when it is done. Batches are
//! refused. After the end of the input the calls under way are answered, and every session ends.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::budget::Response;
pub use super::lines::MAX_LINE;
use super::lines::{Line, Lines};
use super::{CallError, CommandInterface, ExportedKeys, latin1};
use crate::keys::KeyFilter;
use crate::{Error, Result};

/// How many bytes the lines of all calls under way may hold together; small ones don't count.
const REQUESTS: usize = MAX_LINE;

/// A line up to this size doesn't count.
const SMALL_LINE: usize = 16 * 1024;

/// The size of one permit.
const UNIT: usize = 1024;

/// How many calls may be under way. A session has at most two, the second of which ends it; the rest is
/// for exports and for calls that are rejected.
const MAX_CALLS: usize = 512;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// A call that was understood and rejected. `data.kind` is the [`CallError::word`]; for an error of
/// GnuPG there are also `data.cause`, its [`ErrorKind`](crate::ErrorKind), and `data.hints`.
const REJECTED: i32 = -32000;

/// The error object of an answer.
struct RpcError {
    code: i32,
    message: String,
    data: Value,
}

impl RpcError {
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

impl From<CallError> for RpcError {
    fn from(error: CallError) -> Self {
        let mut data = json!({ "kind": error.word() });
        if let Some(data) = data.as_object_mut() {
            match &error {
                CallError::NotReady { state, .. } => {
                    data.insert("state".into(), format!("{state:?}").into());
                }
                CallError::Keys(error) => {
                    data.insert("cause".into(), json!(error.kind));
                    data.insert("hints".into(), json!(error.hints));
                }
                CallError::MalformedId { .. }
                | CallError::UnknownId(_)
                | CallError::IdInUse(_)
                | CallError::TooManySessions { .. }
                | CallError::TooManyBytes { .. }
                | CallError::Ended { .. }
                | CallError::ResponseTooLarge
                | CallError::NotLatin1 { .. }
                | CallError::MalformedVersion => {}
            }
        }
        Self { code: REJECTED, message: error.to_string(), data }
    }
}

/// Serves calls until the input ends or the output fails. Must be called where local tasks can be spawned.
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
    let broken = |error: io::Error| Error::failed("can't serve calls").caused_by(error);
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
                        Err(error) => Some(error.answer(&id_of(&line)).into()),
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

/// The result of writing an answer. A panic in a call was shown already.
fn written(ended: Result<io::Result<()>, JoinError>) -> io::Result<()> {
    ended.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The id of a call that is refused unread; null if it has none.
fn id_of(line: &Line) -> Value {
    #[derive(Deserialize)]
    struct Head {
        id: Value,
    }
    match line {
        // Nothing else of it is kept.
        Line::Whole(bytes) => serde_json::from_slice(bytes).map_or(Value::Null, |Head { id }| id),
        Line::TooLong => Value::Null,
    }
}

/// Reserves room for a line among those of the calls under way.
fn hold(requests: &Arc<Semaphore>, line: &Line) -> Result<Option<OwnedSemaphorePermit>, RpcError> {
    let size = match line {
        Line::Whole(bytes) => bytes.len(),
        Line::TooLong => 0,
    };
    if size <= SMALL_LINE {
        return Ok(None);
    }
    let units = u32::try_from(size / UNIT).unwrap_or(u32::MAX);
    let room = Arc::clone(requests).try_acquire_many_owned(units);
    room.map(Some).map_err(|_| CallError::TooManyBytes { limit: REQUESTS }.into())
}

/// An answer to be written.
enum Reply {
    Whole(Value),
    /// An export. The guard keeps others out until it is written.
    Export(Value, #[allow(dead_code, reason = "held, not read")] OwnedMutexGuard<()>),
    /// A large response, which becomes JSON while it is written.
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

/// The result of a call.
enum Outcome {
    Value(Value),
    Export(ExportedKeys, OwnedMutexGuard<()>),
    Response(Response),
}

/// The answer to a line, if it gets one.
async fn answer(interface: &CommandInterface, line: Line) -> Option<Reply> {
    let refuse = |error: RpcError| Some(error.answer(&Value::Null).into());
    let request = match line {
        Line::Whole(line) if line.trim_ascii().is_empty() => return None,
        Line::Whole(line) => serde_json::from_slice(&line),
        Line::TooLong => {
            let text = format!("the line has more than {MAX_LINE} bytes");
            return refuse(RpcError::new(INVALID_REQUEST, text));
        }
    };
    let mut request = match request {
        Ok(Value::Object(request)) => request,
        Ok(_) => {
            let text = "expected one object, got something else";
            return refuse(RpcError::new(INVALID_REQUEST, text));
        }
        // Only the position: the line can hold secrets.
        Err(error) => {
            let text = format!("invalid JSON at column {}", error.column());
            return refuse(RpcError::new(PARSE_ERROR, text));
        }
    };
    let id = request.get("id").cloned();
    let result = call(interface, &mut request).await;
    // Without an id it is a notification, which gets no answer.
    let id = id?;
    let good = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    Some(match result {
        Ok(Outcome::Value(result)) => Reply::Whole(good(result)),
        Ok(Outcome::Export(keys, turn)) => Reply::Export(good(json!(keys)), turn),
        Ok(Outcome::Response(response)) => Reply::Response { id, response },
        Err(error) => Reply::Whole(error.answer(&id)),
    })
}

async fn call(
    interface: &CommandInterface,
    request: &mut Map<String, Value>,
) -> Result<Outcome, RpcError> {
    if request.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcError::new(INVALID_REQUEST, "expected \"jsonrpc\": \"2.0\""));
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return Err(RpcError::new(INVALID_REQUEST, "expected the name of a method"));
    };
    let params = match request.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(RpcError::new(INVALID_PARAMS, "expected parameters by name")),
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
            // The block is large, and `params` holds a copy of it.
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
        _ => return Err(RpcError::new(METHOD_NOT_FOUND, "there is no such method")),
    };
    Ok(Outcome::Value(value))
}

fn text<'a>(params: &'a Map<String, Value>, name: &str) -> Result<&'a str, RpcError> {
    params
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("expected {name}, a string")))
}

/// `all`, `pairs`, a key, or a list of keys. A comma in a key of a list doesn't separate keys.
fn filter(value: Option<&Value>) -> Result<KeyFilter, RpcError> {
    let error = || RpcError::new(INVALID_PARAMS, "expected filter, a string or a list of strings");
    match value {
        Some(Value::String(text)) => Ok(match text.as_str() {
            "all" => KeyFilter::All,
            "pairs" => KeyFilter::Pairs,
            key => KeyFilter::of_words([key]),
        }),
        Some(Value::Array(words)) => {
            let words = words.iter().map(|word| word.as_str().ok_or_else(error));
            Ok(KeyFilter::of_words(words.collect::<Result<Vec<_>, _>>()?))
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_rejected_call_has_its_kind_and_that_of_the_error_behind_it() {
        let error = Error::new(ErrorKind::NoAgent, "gpg can't be started").hint("install it");
        let answer = RpcError::from(CallError::Keys(error)).answer(&json!(7));
        assert_eq!(answer["id"], 7);
        assert_eq!(
            answer["error"],
            json!({
                "code": REJECTED,
                "message": "gpg can't be started",
                "data": { "kind": "keys", "cause": "no-agent", "hints": ["install it"] },
            })
        );
    }

    #[test]
    fn lines_past_the_limit_of_all_calls_are_rejected_with_a_kind() {
        let requests = Arc::new(Semaphore::new(20));
        let line = || Line::Whole(vec![b'x'; 17 * 1024]);
        let held = hold(&requests, &line());
        assert!(matches!(held, Ok(Some(_))));
        let Err(error) = hold(&requests, &line()) else { panic!("there is no room") };
        assert_eq!(error.data["kind"], "tooManyBytes");
        drop(held);
        assert!(hold(&requests, &line()).is_ok());
    }
}
