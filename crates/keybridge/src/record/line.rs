//! A line of the record.

use base16ct::HexDisplay;
use keybridge_proto::permission::{Decided, Person, Subject, Wanted};
use keybridge_proto::session::{Entry, Outcome};
use keybridge_proto::{Lane, OperationSet, printable_up_to};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The hash before the first line, and before one whose predecessor isn't known.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// How many bytes are kept of the first line of a message, and of what else a target has chosen. Long lines
/// would push out the older ones sooner.
const MAX_TITLE: usize = 80;
const MAX_WORD: usize = 48;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) n: u64,
    /// When it was written, in UTC. It is only shown: a clock can be set back.
    pub(crate) time: String,
    /// The target's address.
    pub(crate) target: String,
    /// What identifies the target, whatever name it was found by.
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) what: What,
    /// The hash of the line before.
    pub(crate) prev: String,
}

/// What a line is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum What {
    /// An operation.
    Operation {
        lane: Lane,
        /// Several where the host can't tell which one it is.
        operations: OperationSet,
        key: String,
        signed: Signed,
        /// Who decided. Nobody, if the client went before that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decided: Option<Decided>,
        result: Outcome,
        /// Milliseconds, with all the waiting.
        ms: u64,
    },
    /// Operations of this target before it have no line.
    LeftOut {
        /// So many that weren't done: there were too many of them.
        not_done: u64,
        /// So many that couldn't be written.
        unwritten: u64,
    },
}

/// What an operation was done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Signed {
    /// A commit, with the id that git gives to it once it is signed.
    Commit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        title: String,
        author: Person,
        committer: Person,
    },
    /// A tag, with the id that git gives to it once it is signed.
    Tag {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        name: String,
        object: String,
        title: String,
        tagger: Person,
    },
    /// A hash.
    Hash,
    /// A session key, which was decrypted.
    SessionKey,
    /// A login, and the server's key if the server has proven it.
    Login {
        user: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// A file or a message.
    Message { namespace: String },
    /// Data of no known kind.
    Data,
}

impl What {
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        let Wanted { operations, key, subject } = entry.wanted;
        Self::Operation {
            lane: match subject {
                Subject::Commit { .. } | Subject::Tag { .. } => Lane::Git,
                Subject::Hash | Subject::SessionKey => Lane::Gpg,
                Subject::Login { .. } | Subject::Message { .. } | Subject::Data => Lane::Ssh,
            },
            operations: *operations,
            key: key.to_string(),
            signed: Signed::of(subject, entry.object.clone()),
            decided: entry.decided.cloned(),
            result: entry.outcome,
            ms: u64::try_from(entry.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Signed {
    fn of(subject: &Subject, id: Option<String>) -> Self {
        match subject {
            Subject::Commit { author, committer, message, .. } => Self::Commit {
                id,
                title: title(message),
                author: person(author),
                committer: person(committer),
            },
            Subject::Tag { name, object, tagger, message } => Self::Tag {
                id,
                name: word(name),
                object: object.clone(),
                title: title(message),
                tagger: person(tagger),
            },
            Subject::Hash => Self::Hash,
            Subject::SessionKey => Self::SessionKey,
            Subject::Login { user, host } => {
                Self::Login { user: word(user), host: host.map(|host| host.to_string()) }
            }
            Subject::Message { namespace } => Self::Message { namespace: word(namespace) },
            Subject::Data => Self::Data,
        }
    }
}

/// The first line of a message that isn't blank, cut.
fn title(message: &[String]) -> String {
    let first = message.iter().find(|line| !line.is_empty()).map_or("", String::as_str);
    printable_up_to(first, MAX_TITLE)
}

fn word(text: &str) -> String {
    printable_up_to(text, MAX_WORD)
}

fn person(Person { name, email }: &Person) -> Person {
    Person { name: word(name), email: word(email) }
}

/// The hash of a line, without its end.
pub(super) fn hash(line: &[u8]) -> String {
    format!("{:x}", HexDisplay(&Sha256::digest(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        let long = "ü".repeat(3 * MAX_TITLE);
        for (message, expected) in [
            (vec![], String::new()),
            (vec!["a", "secret body"], "a".to_owned()),
            (vec!["", "b"], "b".to_owned()),
            (vec![&long], format!("{}…", "ü".repeat((MAX_TITLE - "…".len()) / 2))),
        ] {
            let message: Vec<String> = message.into_iter().map(str::to_owned).collect();
            assert_eq!(title(&message), expected);
        }
    }

    #[test]
    fn a_line_is_short_whatever_a_target_chooses() {
        let long = "x".repeat(200);
        let person = || Person { name: long.clone(), email: long.clone() };
        let (name, object, message) = (long.clone(), "0".repeat(64), vec![long.clone()]);
        let (tree, parents) = (object.clone(), vec![object.clone()]);
        let (author, committer) = (person(), person());
        let commit = Subject::Commit {
            tree,
            parents,
            author,
            committer,
            fields: Vec::new(),
            message: message.clone(),
        };
        let tag = Subject::Tag { name, object, tagger: person(), message };
        for subject in [
            commit,
            tag,
            Subject::Login { user: long.clone(), host: None },
            Subject::Message { namespace: long.clone() },
        ] {
            let signed = serde_json::to_vec(&Signed::of(&subject, Some("0".repeat(64)))).unwrap();
            assert!(signed.len() < 500, "{}", signed.len());
        }
    }
}
