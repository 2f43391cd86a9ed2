//! The sockets that a host of version 1 asks for, in the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use keybridge_proto::{Lane, printable};

use super::json::{JsonError, JsonValue, parse};

/// Where they are named.
pub(super) const VARIABLE: &str = "CLAWKER_REMOTE_SOCKETS";

/// What is wrong with the list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SocketsError {
    #[error("{VARIABLE} is not set")]
    Missing,
    #[error("{VARIABLE} is not UTF-8")]
    NotText,
    #[error("{VARIABLE} is {0}")]
    NotJson(#[from] JsonError),
    #[error("{VARIABLE} is not a list of objects with a \"path\" and a \"type\"")]
    NotSockets,
    #[error("{VARIABLE} names no socket")]
    Empty,
    #[error("{VARIABLE} has a socket of unknown type {0}; gpg-agent and ssh-agent are known")]
    UnknownType(String),
    #[error("{VARIABLE} has a path that is not absolute: {0}")]
    NotAbsolute(String),
    #[error("{VARIABLE} has two sockets of type {0}")]
    Twice(&'static str),
}

/// The sockets, each for another lane.
pub(super) fn read(value: Option<OsString>) -> Result<Vec<(Lane, PathBuf)>, SocketsError> {
    let value = value.filter(|value| !value.is_empty()).ok_or(SocketsError::Missing)?;
    let text = value.into_string().map_err(|_| SocketsError::NotText)?;
    let JsonValue::List(list) = parse(&text)? else { return Err(SocketsError::NotSockets) };
    let mut sockets: Vec<(Lane, PathBuf)> = Vec::new();
    for value in &list {
        let (lane, path) = socket(value)?;
        if sockets.iter().any(|(other, _)| *other == lane) {
            return Err(SocketsError::Twice(lane.wire_name()));
        }
        sockets.push((lane, path));
    }
    if sockets.is_empty() { Err(SocketsError::Empty) } else { Ok(sockets) }
}

fn socket(value: &JsonValue) -> Result<(Lane, PathBuf), SocketsError> {
    let JsonValue::Object(members) = value else { return Err(SocketsError::NotSockets) };
    // Of several members with one name the last one counts, as elsewhere.
    let text = |wanted: &str| {
        let member = members.iter().rev().find(|(name, _)| name == wanted);
        match member {
            Some((_, JsonValue::Text(text))) => Ok(text),
            Some((_, JsonValue::List(_) | JsonValue::Object(_) | JsonValue::Other)) | None => {
                Err(SocketsError::NotSockets)
            }
        }
    };
    let (kind, path) = (text("type")?, text("path")?);
    let lane = Lane::from_wire_name(kind.as_bytes())
        .ok_or_else(|| SocketsError::UnknownType(printable(kind).to_string()))?;
    if !path.starts_with('/') || path.contains('\0') {
        return Err(SocketsError::NotAbsolute(printable(path).to_string()));
    }
    Ok((lane, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<(Lane, PathBuf)>, SocketsError> {
        read(Some(text.into()))
    }

    #[test]
    fn each_lane_has_its_path() {
        let text = r#"[{"path": "/h/.gnupg/S.gpg-agent", "type": "gpg-agent"},
                       {"type": "ssh-agent", "mode": 384, "path": "/h/.ssh/agent.sock"}]"#;
        let sockets =
            [(Lane::Gpg, "/h/.gnupg/S.gpg-agent".into()), (Lane::Ssh, "/h/.ssh/agent.sock".into())];
        assert_eq!(of(text).unwrap(), sockets);
    }

    #[test]
    fn everything_else_is_an_error_that_says_what() {
        for (text, error) in [
            ("", "is not set"),
            ("x", "not JSON"),
            ("{}", "is not a list"),
            ("[1]", "is not a list"),
            (r#"[{"path": "/a"}]"#, "is not a list"),
            (r#"[{"path": 1, "type": "ssh-agent"}]"#, "is not a list"),
            ("[]", "names no socket"),
            (r#"[{"path": "/a", "type": "x\u001b"}]"#, "unknown type x\\u{1b}"),
            (r#"[{"path": "a", "type": "ssh-agent"}]"#, "not absolute: a"),
            (
                r#"[{"path": "/a", "type": "ssh-agent"}, {"path": "/b", "type": "ssh-agent"}]"#,
                "two sockets of type ssh-agent",
            ),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(message.contains(error), "{text}: {message}");
        }
        assert_eq!(read(None), Err(SocketsError::Missing));
    }
}
