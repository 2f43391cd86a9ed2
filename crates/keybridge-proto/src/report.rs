//! The payloads of READY and ERROR, and the header of a series of keys.
//!
//! Each is text: a line `name value` for each fact, with the value escaped as Assuan data. Unknown names
//! are ignored, so that either side can be newer. Everything from a helper is untrusted: its texts are
//! made [`printable`](crate::printable) and cut as they are parsed.

use crate::assuan::{escape_into, unescape};
use crate::printable::printable_up_to;
use crate::{Lane, PerLane};

/// The longest text of a READY. A socket's path is shorter, and all of them fit into one line of
/// `status`.
const READY_TEXT: usize = 256;

/// The longest text of an ERROR, which names paths and what a program said.
const ERROR_TEXT: usize = 1024;

/// How many warnings, hints or answers are kept: more than two lanes can need.
const MOST_TEXTS: usize = 16;

/// What a helper has set up: the payload of READY.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ready {
    /// The user that the helper runs as.
    pub user: String,
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
    /// What the agents answered when the helper probed them through its own sockets. A report with
    /// answers reports nothing about keys.
    pub answers: Vec<ProbeResult>,
}

/// The result of probing an agent through the whole chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// The lane of the agent.
    pub lane: Lane,
    /// gpg-agent's version or the number of an ssh-agent's keys, or why there is no answer.
    pub outcome: Result<String, String>,
}

/// What an import changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// What failed and why, with the path.
    pub message: String,
    /// What the user can do about it.
    pub hints: Vec<String>,
}

/// The kinds of failure in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// The header of a series of keys. Ownertrust follows, and after it an OpenPGP export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysHeader {
    /// The size of the ownertrust text.
    pub ownertrust: u32,
}

impl Ready {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        put(&mut payload, "user", &self.user);
        put(&mut payload, "gnupg", &self.gnupg);
        put(&mut payload, "home", &self.home);
        for (lane, socket) in self.sockets.iter() {
            if let Some(socket) = socket {
                put(&mut payload, &format!("{lane}-socket"), socket);
            }
        }
        if let Some(keys) = &self.keys {
            let KeyChanges { new, updated, unchanged, ownertrust } = keys;
            put(&mut payload, "keys", &format!("{new} {updated} {unchanged} {ownertrust}"));
        }
        for warning in &self.warnings {
            put(&mut payload, "warning", warning);
        }
        for ProbeResult { lane, outcome } in &self.answers {
            let (Ok(text) | Err(text)) = outcome;
            let outcome = if outcome.is_ok() { "answers" } else { "fails" };
            put(&mut payload, "answer", &format!("{lane} {outcome} {text}"));
        }
        payload
    }

    /// Parses a payload. Invalid lines are ignored.
    pub fn decode(payload: &[u8]) -> Self {
        let mut ready = Self::default();
        for (name, value) in facts(payload, READY_TEXT) {
            match name {
                b"user" => ready.user = value,
                b"gnupg" => ready.gnupg = value,
                b"home" => ready.home = value,
                b"gpg-socket" => ready.sockets.gpg = Some(value),
                b"ssh-socket" => ready.sockets.ssh = Some(value),
                b"keys" => ready.keys = KeyChanges::parse(&value),
                b"warning" if ready.warnings.len() < MOST_TEXTS => ready.warnings.push(value),
                b"answer" if ready.answers.len() < MOST_TEXTS => {
                    ready.answers.extend(ProbeResult::parse(&value));
                }
                _ => {}
            }
        }
        ready
    }
}

impl KeyChanges {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { new: next()?, updated: next()?, unchanged: next()?, ownertrust: next()? })
    }
}

impl ProbeResult {
    fn parse(text: &str) -> Option<Self> {
        let (lane, rest) = text.split_once(' ')?;
        let (outcome, text) = rest.split_once(' ')?;
        let outcome = match outcome {
            "answers" => Ok(text.to_owned()),
            "fails" => Err(text.to_owned()),
            _ => return None,
        };
        Some(Self { lane: lane.parse().ok()?, outcome })
    }
}

impl Failure {
    /// The payload.
    pub fn encode(&self) -> String {
        let mut payload = Vec::new();
        put(&mut payload, "kind", self.kind.word());
        put(&mut payload, "message", &self.message);
        for hint in &self.hints {
            put(&mut payload, "hint", hint);
        }
        String::from_utf8_lossy(&payload).into_owned()
    }

    /// Parses a payload. One in another form becomes the message as a whole.
    pub fn decode(payload: &[u8]) -> Self {
        let mut failure = Self { kind: FailureKind::Other, message: String::new(), hints: vec![] };
        for (name, value) in facts(payload, ERROR_TEXT) {
            match name {
                b"kind" => failure.kind = FailureKind::from_word(&value),
                b"message" => failure.message = value,
                b"hint" if failure.hints.len() < MOST_TEXTS => failure.hints.push(value),
                _ => {}
            }
        }
        if failure.message.is_empty() {
            failure.message = printable_up_to(payload.trim_ascii(), ERROR_TEXT);
        }
        failure
    }
}

impl FailureKind {
    const ALL: [Self; 6] = [
        Self::NotFound,
        Self::InUse,
        Self::NotPermitted,
        Self::NoGnupg,
        Self::SameHome,
        Self::Other,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::InUse => "in-use",
            Self::NotPermitted => "not-permitted",
            Self::NoGnupg => "no-gnupg",
            Self::SameHome => "same-home",
            Self::Other => "other",
        }
    }

    fn from_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.word() == word).unwrap_or(Self::Other)
    }
}

impl KeysHeader {
    /// The longest header; a reader gives up after that.
    pub const MAX_SIZE: usize = 32;

    /// The header, with its LF.
    pub fn encode(self) -> Vec<u8> {
        format!("KEYS {}\n", self.ownertrust).into_bytes()
    }

    /// Parses a header without its LF.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let number = std::str::from_utf8(line.strip_prefix(b"KEYS ")?).ok()?;
        number.parse().ok().map(|ownertrust| Self { ownertrust })
    }
}

/// Adds a fact to a payload.
pub(crate) fn put(payload: &mut Vec<u8>, name: &str, value: &str) {
    payload.extend_from_slice(name.as_bytes());
    payload.push(b' ');
    escape_into(payload, value.as_bytes());
    payload.push(b'\n');
}

/// The facts of a payload. Values are printable and cut to `limit` bytes.
pub(crate) fn facts(payload: &[u8], limit: usize) -> impl Iterator<Item = (&[u8], String)> {
    payload.split(|&byte| byte == b'\n').filter_map(move |line| {
        let space = line.iter().position(|&byte| byte == b' ')?;
        let (name, value) = line.split_at(space);
        let value = unescape(value.get(1..)?).ok()?;
        Some((name, printable_up_to(&value, limit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_round_trips() {
        let ready = Ready {
            user: "dév".into(),
            gnupg: "2.4.7".into(),
            home: "/home/dev/.gnupg".into(),
            sockets: PerLane {
                gpg: Some("/run/user/1000/gnupg/S.gpg-agent %".into()),
                ssh: Some("/home/me/.ssh/agent.sock".into()),
            },
            keys: Some(KeyChanges { new: 1, updated: 2, unchanged: 3, ownertrust: 4 }),
            warnings: vec!["one".into(), String::new()],
            answers: vec![
                ProbeResult { lane: Lane::Gpg, outcome: Ok("2.4.7".into()) },
                ProbeResult { lane: Lane::Ssh, outcome: Err("the agent % hung up".into()) },
            ],
        };
        assert_eq!(Ready::decode(&ready.encode()), ready);
        let odd =
            b"\xff\n\nuser %zz\nfuture x\nkeys 1 2\nanswer gpg\nanswer gpg may 2\nanswer x fails 2";
        assert_eq!(Ready::decode(odd), Ready::default());
    }

    #[test]
    fn texts_are_cut_and_made_printable() {
        for odd in ["\u{1}".repeat(7500), "u".repeat(16 << 10), "\u{202e}\u{2066}".repeat(2000)] {
            let warnings = vec![odd.clone(); 100];
            let outcome = [Ok(odd.clone()), Err(odd.clone())];
            let ready = Ready {
                user: odd.clone(),
                gnupg: odd.clone(),
                home: odd.clone(),
                sockets: PerLane::from_fn(|_| Some(odd.clone())),
                keys: None,
                warnings,
                answers: outcome.map(|outcome| ProbeResult { lane: Lane::Gpg, outcome }).into(),
            };
            let Ready { user, gnupg, home, sockets, keys: _, warnings, answers } =
                Ready::decode(&ready.encode());
            assert_eq!((warnings.len(), answers.len()), (MOST_TEXTS, 2));
            let sockets = [sockets.gpg, sockets.ssh].map(Option::unwrap);
            let outcome =
                answers.into_iter().map(|answer| answer.outcome.unwrap_or_else(|text| text));
            let texts =
                [user, gnupg, home].into_iter().chain(sockets).chain(warnings).chain(outcome);
            for text in texts {
                assert!(text.len() <= READY_TEXT, "{} bytes", text.len());
                assert_eq!(crate::printable(&text).to_string(), text);
            }
            let failure =
                Failure { kind: FailureKind::Other, message: odd.clone(), hints: vec![odd; 100] };
            let Failure { message, hints, .. } = Failure::decode(failure.encode().as_bytes());
            assert_eq!(hints.len(), MOST_TEXTS);
            for text in hints.into_iter().chain([message]) {
                assert!(text.len() <= ERROR_TEXT, "{} bytes", text.len());
                assert_eq!(crate::printable(&text).to_string(), text);
            }
        }
        let plain = Failure::decode(&[0x1b; 5000]);
        assert!(plain.message.len() <= ERROR_TEXT && plain.message.starts_with("\\u{1b}"));
    }

    #[test]
    fn a_failure_round_trips() {
        for kind in FailureKind::ALL {
            let failure = Failure { kind, message: "a % b".into(), hints: vec!["do this".into()] };
            assert_eq!(Failure::decode(failure.encode().as_bytes()), failure);
        }
        let plain = Failure::decode(b" not in our form\n");
        assert_eq!((plain.kind, plain.message.as_str()), (FailureKind::Other, "not in our form"));
    }

    #[test]
    fn the_header_of_a_series_of_keys_round_trips() {
        let header = KeysHeader { ownertrust: u32::MAX };
        let line = header.encode();
        assert!(line.len() <= KeysHeader::MAX_SIZE);
        assert_eq!(KeysHeader::parse(line.strip_suffix(b"\n").unwrap()), Some(header));
        for bad in [&b""[..], b"KEYS", b"KEYS ", b"KEYS -1", b"KEYS 4294967296", b"KEYS 1 2"] {
            assert_eq!(KeysHeader::parse(bad), None, "{bad:?}");
        }
    }
}
