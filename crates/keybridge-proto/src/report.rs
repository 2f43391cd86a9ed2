//! The payloads of READY and ERROR, and the header of a series of keys: JSON.
//!
//! Everything from a helper is untrusted: its texts are made [`printable`](crate::printable) and cut, and
//! its lists are cut, before anything else looks at them. What is unknown or missing is an error.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mux::ERROR_LIMIT;
use crate::printable::printable_up_to;
use crate::{Lane, PerLane};

/// How much of a payload is kept.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The longest text.
    pub(crate) text: usize,
    /// The longest list.
    pub(crate) entries: usize,
}

/// A socket's path is shorter, and all texts of a READY fit into one line of `status`. More than two lanes
/// can need.
const READY: Bounds = Bounds { text: 256, entries: 16 };

/// An ERROR names paths, and what a program said.
const ERROR: Bounds = Bounds { text: 1024, entries: 16 };

/// The payload of READY.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// What is set up, after each series of keys.
    Ready(Ready),
    /// What the agents answered when the helper probed them through its own sockets.
    Answers(Vec<ProbeResult>),
}

/// What a helper has set up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The user that the helper runs as. A version 1 server doesn't say.
    pub user: Option<User>,
    /// GnuPG's version in the target.
    pub gnupg: String,
    /// GnuPG's home in the target.
    pub home: String,
    /// Where clients connect.
    pub sockets: PerLane<Option<String>>,
    /// What a series of keys changed, if one was imported.
    pub keys: Option<KeyChanges>,
    /// Problems that don't stop the bridge.
    pub warnings: Vec<String>,
}

/// A user of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The name, if there is one.
    pub name: Option<String>,
    /// The number.
    pub uid: u32,
}

/// The result of probing an agent through the whole chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeResult {
    /// The lane of the agent.
    pub lane: Lane,
    /// gpg-agent's version or the number of an ssh-agent's keys, or why there is no answer.
    pub outcome: Result<String, String>,
}

/// What an import changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyChanges {
    /// New keys.
    pub new: u32,
    /// Keys that were updated.
    pub updated: u32,
    /// Keys that were the same.
    pub unchanged: u32,
    /// Ownertrust values that were set.
    pub ownertrust: u32,
}

/// Why a helper can't go on: the payload of ERROR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// What failed and why, with the path.
    pub message: String,
    /// What the user can do about it.
    pub hints: Vec<String>,
}

/// The kinds of failure in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// A path that is needed doesn't exist.
    NotFound,
    /// The socket is in use.
    InUse,
    /// A path belongs to another user, or isn't writable.
    NotPermitted,
    /// GnuPG is missing or too old.
    NoGnupg,
    /// The target's GnuPG home is the host's own.
    SameHome,
    /// Anything else.
    Other,
}

/// The header of a series of keys, in a line. Ownertrust follows, and after it an OpenPGP export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysHeader {
    /// The size of the ownertrust text.
    pub ownertrust: u32,
}

/// What `keybridge-remote undo --purge` has removed from a keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purged {
    /// Keys that were removed.
    pub keys: usize,
    /// Values of ownertrust that were set back.
    pub ownertrust: usize,
    /// Keys that stay, since the target has their secret half.
    pub kept: usize,
}

/// How the line with a [`Purged`] begins.
const PURGED: &[u8] = b"keybridge-purged";

/// A payload that isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

impl Report {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        to_json(self, READY)
    }

    /// Parses a payload.
    pub fn decode(payload: &[u8]) -> Result<Self, Unreadable> {
        from_json(payload, READY)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

impl Failure {
    /// The payload, with as many of the hints as an ERROR has room for.
    pub fn encode(&self) -> String {
        let mut failure = self.clone();
        loop {
            let payload = to_json(&failure, ERROR);
            if payload.len() <= ERROR_LIMIT || failure.hints.pop().is_none() {
                return String::from_utf8_lossy(&payload).into_owned();
            }
        }
    }

    /// Parses a payload. One in another form becomes the message as a whole.
    pub fn decode(payload: &[u8]) -> Self {
        from_json(payload, ERROR).unwrap_or_else(|_| Self {
            kind: FailureKind::Other,
            message: printable_up_to(payload.trim_ascii(), ERROR.text),
            hints: Vec::new(),
        })
    }
}

impl KeysHeader {
    /// The longest header; a reader gives up after that.
    pub const MAX_SIZE: usize = 32;

    /// The header, with its LF.
    pub fn encode(self) -> Vec<u8> {
        let mut line = serde_json::to_vec(&self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Parses a header without its LF.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

impl Purged {
    /// The line that the helper prints.
    pub fn to_line(self) -> Vec<u8> {
        to_line(PURGED, &self, READY)
    }

    /// Finds that line in the helper's output.
    pub fn find(output: &[u8]) -> Result<Self, Unreadable> {
        find_line(PURGED, output, READY)
    }
}

impl fmt::Display for Purged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, ownertrust, kept } = self;
        write!(f, "{keys} public keys and {ownertrust} ownertrust values removed")?;
        match kept {
            0 => Ok(()),
            kept => write!(f, ", {kept} keys kept that have a secret key there"),
        }
    }
}

/// Facts on a line of output that begins with this word: a login shell may print other lines.
pub(crate) fn to_line(word: &[u8], facts: &impl Serialize, bounds: Bounds) -> Vec<u8> {
    [word, b" ", &to_json(facts, bounds), b"\n"].concat()
}

/// Reads the facts of such a line.
pub(crate) fn find_line<T: DeserializeOwned>(
    word: &[u8],
    output: &[u8],
    bounds: Bounds,
) -> Result<T, Unreadable> {
    let mut lines = output.split(|&byte| byte == b'\n');
    let json = lines.find_map(|line| line.strip_prefix(word)?.strip_prefix(b" "));
    from_json(json.ok_or_else(|| Unreadable("no line with facts".to_owned()))?, bounds)
}

/// JSON with as much as a reader keeps: a long text must not make the rest too long to read.
fn to_json(facts: &impl Serialize, bounds: Bounds) -> Vec<u8> {
    let mut json = serde_json::to_value(facts).unwrap_or_default();
    bounds.apply(&mut json);
    json.to_string().into_bytes()
}

/// Reads untrusted JSON, whose size has a bound already.
fn from_json<T: DeserializeOwned>(json: &[u8], bounds: Bounds) -> Result<T, Unreadable> {
    let read = serde_json::from_slice(json).and_then(|mut json| {
        bounds.apply(&mut json);
        serde_json::from_value(json)
    });
    // The error can quote what was read.
    read.map_err(|error| Unreadable(printable_up_to(&error.to_string(), bounds.text)))
}

impl Bounds {
    /// Makes all texts printable, and cuts them and the lists. Names are left to the types that they are
    /// fields of.
    fn apply(self, json: &mut Value) {
        match json {
            Value::String(text) => *text = printable_up_to(text, self.text),
            Value::Array(entries) => {
                entries.truncate(self.entries);
                for entry in entries {
                    self.apply(entry);
                }
            }
            Value::Object(fields) => {
                for field in fields.values_mut() {
                    self.apply(field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mux::READY_LIMIT;

    fn ready() -> Ready {
        Ready {
            user: Some(User { name: Some("dév".into()), uid: 1000 }),
            gnupg: "2.4.7".into(),
            home: "/home/dev/.gnupg".into(),
            sockets: PerLane {
                gpg: Some("/run/user/1000/gnupg/S.gpg-agent %".into()),
                ssh: Some("/home/me/.ssh/agent.sock".into()),
                git: None,
            },
            keys: Some(KeyChanges { new: 1, updated: 2, unchanged: 3, ownertrust: 4 }),
            warnings: vec!["one \"\\".into(), String::new()],
        }
    }

    #[test]
    fn a_report_round_trips() {
        let answers = vec![
            ProbeResult { lane: Lane::Gpg, outcome: Ok("2.4.7".into()) },
            ProbeResult { lane: Lane::Ssh, outcome: Err("the agent % hung up".into()) },
        ];
        let empty = Report::Ready(Ready::default());
        for report in [Report::Ready(ready()), Report::Answers(answers), empty] {
            assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
        let user = User { name: None, uid: 7 };
        assert_eq!(user.to_string(), "uid 7");
        assert_eq!(ready().user.unwrap().to_string(), "dév (uid 1000)");
    }

    #[test]
    fn what_is_unknown_missing_or_wrong_is_an_error() {
        let text = String::from_utf8(Report::Ready(ready()).encode()).unwrap();
        for (part, other, why) in [
            ("\"gnupg\"", "\"\\u001b[31m\"", "unknown field `\\u{1b}[31m`"),
            ("\"gnupg\":\"2.4.7\",", "", "missing field `gnupg`"),
            ("1000", "-1", "invalid value: integer `-1`"),
            ("\"ready\"", "\"future\"", "unknown variant `future`"),
            ("}}", "}", "EOF while parsing"),
        ] {
            assert!(text.contains(part), "{part} in {text}");
            let error = Report::decode(text.replace(part, other).as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with(why), "{error}");
        }
        assert!(Report::decode(&[b'['; 16 << 10]).is_err());
        assert!(Report::decode(b"").is_err());
    }

    #[test]
    fn texts_are_cut_and_made_printable() {
        for odd in ["\u{1}".repeat(7500), "u".repeat(16 << 10), "\u{202e}\"\\".repeat(2000)] {
            let sent = Ready {
                user: Some(User { name: Some(odd.clone()), uid: 0 }),
                gnupg: odd.clone(),
                home: odd.clone(),
                sockets: PerLane::from_fn(|_| Some(odd.clone())),
                keys: None,
                warnings: vec![odd.clone(); 100],
            };
            let report = Report::Ready(sent);
            assert!(report.encode().len() <= READY_LIMIT);
            // Of a helper that bounds nothing, too.
            let unbounded = serde_json::to_vec(&report).unwrap();
            let Ok(Report::Ready(ready)) = Report::decode(&unbounded) else { panic!() };
            assert_eq!(Report::decode(&report.encode()), Ok(Report::Ready(ready.clone())));
            let Ready { user, gnupg, home, sockets, keys: _, warnings } = ready;
            assert_eq!(warnings.len(), READY.entries);
            let texts = [user.unwrap().name.unwrap(), gnupg, home].into_iter().chain(warnings);
            for text in texts.chain([sockets.gpg, sockets.ssh].map(Option::unwrap)) {
                assert!(text.len() <= READY.text, "{} bytes", text.len());
                assert_eq!(crate::printable(&text).to_string(), text);
            }
            let failure =
                Failure { kind: FailureKind::Other, message: odd.clone(), hints: vec![odd; 100] };
            assert!(failure.encode().len() <= ERROR_LIMIT);
            let unbounded = serde_json::to_vec(&failure).unwrap();
            let Failure { message, hints, .. } = Failure::decode(&unbounded);
            assert_eq!(hints.len(), ERROR.entries);
            assert_eq!(Failure::decode(failure.encode().as_bytes()).message, message);
            for text in hints.into_iter().chain([message]) {
                assert!(text.len() <= ERROR.text, "{} bytes", text.len());
                assert_eq!(crate::printable(&text).to_string(), text);
            }
        }
        let plain = Failure::decode(&[0x1b; 5000]);
        assert!(plain.message.len() <= ERROR.text && plain.message.starts_with("\\u{1b}"));
    }

    #[test]
    fn a_failure_round_trips() {
        for kind in [FailureKind::NotFound, FailureKind::SameHome, FailureKind::Other] {
            let failure = Failure { kind, message: "a % b".into(), hints: vec!["do this".into()] };
            assert_eq!(Failure::decode(failure.encode().as_bytes()), failure);
        }
        let plain = Failure::decode(b" not in our form\n");
        assert_eq!((plain.kind, plain.message.as_str()), (FailureKind::Other, "not in our form"));
    }

    #[test]
    fn what_was_purged_is_found_behind_other_lines() {
        let purged = Purged { keys: 1, ownertrust: 2, kept: 3 };
        let output = [b"Welcome\n".as_slice(), &purged.to_line(), b"bye\n"].concat();
        assert_eq!(Purged::find(&output), Ok(purged));
        assert!(Purged::find(b"Welcome\n").is_err());
        assert!(Purged::find(b"keybridge-purged {}\n").is_err());
    }

    #[test]
    fn the_header_of_a_series_of_keys_round_trips() {
        let header = KeysHeader { ownertrust: u32::MAX };
        let line = header.encode();
        assert!(line.len() <= KeysHeader::MAX_SIZE);
        assert_eq!(KeysHeader::parse(line.strip_suffix(b"\n").unwrap()), Some(header));
        for bad in ["", "{}", "7", "-1", "4294967296", "1,\"more\":1"] {
            let line = format!("{{\"ownertrust\":{bad}}}");
            let is_number = bad == "7";
            assert_eq!(KeysHeader::parse(line.as_bytes()).is_some(), is_number, "{line}");
            assert_eq!(KeysHeader::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
