//! The environment variable that names the sockets that a host of version 1 asks for.

use std::ffi::OsString;
use std::path::PathBuf;

use keybridge_proto::{Lane, PerLane, printable};
use serde_json::Value;

/// Where they are named.
pub(super) const VARIABLE: &str = "CLAWKER_REMOTE_SOCKETS";

/// What is wrong with the list.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketsError {
    #[error("{VARIABLE} is not set")]
    Missing,
    #[error("{VARIABLE} is not UTF-8")]
    NotText,
    #[error("{VARIABLE} is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
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

/// The path of each lane's socket, if the host asks for one.
pub(super) type Sockets = PerLane<Option<PathBuf>>;

/// Reads the variable's value.
pub(super) fn read(value: Option<OsString>) -> Result<Sockets, SocketsError> {
    let value = value.filter(|value| !value.is_empty()).ok_or(SocketsError::Missing)?;
    let text = value.into_string().map_err(|_| SocketsError::NotText)?;
    let Value::Array(list) = serde_json::from_str(&text)? else {
        return Err(SocketsError::NotSockets);
    };
    if list.is_empty() {
        return Err(SocketsError::Empty);
    }
    let mut sockets = Sockets::default();
    for value in &list {
        let (lane, path) = socket(value)?;
        if sockets[lane].replace(path).is_some() {
            return Err(SocketsError::Twice(lane.wire_name()));
        }
    }
    Ok(sockets)
}

fn socket(value: &Value) -> Result<(Lane, PathBuf), SocketsError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).ok_or(SocketsError::NotSockets);
    let (kind, path) = (text("type")?, text("path")?);
    let lane = Lane::from_wire_name(kind.as_bytes())
        .filter(|lane| Lane::AGENTS.contains(lane))
        .ok_or_else(|| SocketsError::UnknownType(printable(kind).to_string()))?;
    if !path.starts_with('/') || path.contains('\0') {
        return Err(SocketsError::NotAbsolute(printable(path).to_string()));
    }
    Ok((lane, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Sockets, SocketsError> {
        read(Some(text.into()))
    }

    #[test]
    fn each_lane_has_its_path() {
        let text = r#"[{"path": "/h/.gnupg/S.gpg-agent", "type": "gpg-agent"},
                       {"type": "ssh-agent", "mode": 384, "path": "/h/.ssh/agent.sock"}]"#;
        let sockets = Sockets {
            gpg: Some("/h/.gnupg/S.gpg-agent".into()),
            ssh: Some("/h/.ssh/agent.sock".into()),
            git: None,
        };
        assert_eq!(of(text).unwrap(), sockets);
    }

    #[test]
    fn everything_else_is_an_error_that_says_what() {
        for (text, error) in [
            ("", "is not set"),
            ("x", "is not JSON: expected value at line 1"),
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
        assert!(matches!(read(None), Err(SocketsError::Missing)));
    }
}
