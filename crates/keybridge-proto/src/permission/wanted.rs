//! One operation that a target wants done, as the host knows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gate::KeyGrip;
use crate::git::{Commit, Identity, Object, Tag};
use crate::printable::{printable, printable_up_to};
use crate::ssh::Fingerprint;
use crate::{Operation, OperationSet};

/// How much of a message is kept to be shown. Three questions fit into a line of the control socket.
const MAX_MESSAGE: usize = 32 * 1024;

/// How much is kept of a name, an address, or another word.
const MAX_WORD: usize = 200;

/// How many parents of a commit are kept.
const MAX_PARENTS: usize = 16;

/// An operation, its key, and what it is done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// What is done. Several where the host can't tell which one it is: all of them have to be lent.
    pub operations: OperationSet,
    /// With which key.
    pub key: KeyName,
    /// To what.
    pub subject: Subject,
}

/// A key, by the name that doesn't change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyName {
    /// One of gpg-agent's, by its keygrip.
    Grip(KeyGrip),
    /// One of the ssh-agent's, by its fingerprint.
    Print(Fingerprint),
}

/// What an operation is done to, as far as the host has read it. All texts are printable and short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Subject {
    /// A commit.
    Commit {
        /// Its tree.
        tree: String,
        /// The commits before it.
        parents: Vec<String>,
        /// Who wrote it.
        author: Person,
        /// Who made it.
        committer: Person,
        /// Its other header fields, and the encoding of its texts if it names one.
        fields: Vec<String>,
        /// Its message, line by line.
        message: Vec<String>,
    },
    /// A tag.
    Tag {
        /// Its name.
        name: String,
        /// What it names.
        object: String,
        /// Who made it.
        tagger: Person,
        /// Its message, line by line.
        message: Vec<String>,
    },
    /// A hash, of which the host can't know what it stands for.
    Hash,
    /// A session key.
    SessionKey,
    /// A login.
    Login {
        /// The user on the server.
        user: String,
        /// The server's key, if the server has proven it on this connection.
        host: Option<Fingerprint>,
    },
    /// A file or a message that an ssh key signs.
    Message {
        /// What kind of message it is: `git`, `file`.
        namespace: String,
    },
    /// Data that an ssh key signs, and that is neither a login nor a message.
    Data,
}

/// A person, as a commit or a tag names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

/// Why an operation isn't done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It isn't lent.
    #[error("it isn't lent")]
    NotLent,
    /// A committer or a tagger whom the user hasn't listed.
    #[error("its committer isn't among those whose commits are signed")]
    Committer,
    /// A login that the user hasn't listed.
    #[error("this login isn't among those that are allowed")]
    Login,
    /// The key was used as often as it may, and nobody can be asked.
    #[error("the key was used as often as it may be for now")]
    Limit,
    /// A person said no.
    #[error("a person said no")]
    No,
    /// A person said no to the same a moment ago.
    #[error("a person said no to this a moment ago")]
    EarlierNo,
    /// Nobody has answered in time.
    #[error("nobody has answered in time")]
    Unanswered,
    /// Nobody can be asked.
    #[error("nobody is there who could be asked")]
    Nobody,
    /// As many questions wait as may.
    #[error("too many questions wait for an answer")]
    TooMany,
    /// Questions of this target went unanswered.
    #[error("nobody has answered the last questions, so none is asked for some minutes")]
    Silenced,
    /// It can't be recorded, and has to be.
    #[error("it can't be recorded on the host")]
    Unrecorded,
    /// It was allowed without a question, and waited until settings were in force that ask.
    #[error("the settings have changed while it waited")]
    Changed,
}

/// Who or what has decided on an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// The settings lend it.
    Settings,
    /// A person said yes, by this way of asking.
    Person(String),
    /// A person has said yes for a while.
    EarlierYes,
    /// It was refused.
    Refused(Refusal),
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grip(grip) => fmt::Display::fmt(grip, f),
            Self::Print(print) => fmt::Display::fmt(print, f),
        }
    }
}

/// What a line of the log says of it.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, key, subject } = self;
        match subject {
            Subject::Login { user, host: Some(host) } => {
                write!(f, "login as {user:?} at the host of {host} with {key}")
            }
            Subject::Login { user, host: None } => {
                write!(f, "login as {user:?} at a host that hasn't proven its key, with {key}")
            }
            Subject::Commit { .. }
            | Subject::Tag { .. }
            | Subject::Hash
            | Subject::SessionKey
            | Subject::Message { .. }
            | Subject::Data => write!(f, "{operations} with {key}"),
        }
    }
}

impl Wanted {
    /// A signature of an object that the host has read.
    pub fn git(object: &Object<'_>, key: KeyName) -> Self {
        let (operation, subject) = match object {
            Object::Commit(commit) => (Operation::Commit, Subject::commit(commit)),
            Object::Tag(tag) => (Operation::Tag, Subject::tag(tag)),
        };
        Self { operations: [operation].into_iter().collect(), key, subject }
    }
}

impl Subject {
    fn commit(commit: &Commit<'_>) -> Self {
        let parents = commit.parents.iter().take(MAX_PARENTS);
        Self::Commit {
            tree: commit.tree.as_str().to_owned(),
            parents: parents.map(|id| id.as_str().to_owned()).collect(),
            author: Person::of(&commit.author),
            committer: Person::of(&commit.committer),
            fields: fields(commit),
            message: lines(commit.message),
        }
    }

    fn tag(tag: &Tag<'_>) -> Self {
        Self::Tag {
            name: printable_up_to(tag.name, MAX_WORD),
            object: tag.object.as_str().to_owned(),
            tagger: Person::of(&tag.tagger),
            message: lines(tag.message),
        }
    }

    /// A login of this user, at the host that has proven this key.
    pub(crate) fn login(user: &[u8], host: Option<Fingerprint>) -> Self {
        Self::Login { user: printable_up_to(user, MAX_WORD), host }
    }

    /// A message in this namespace.
    pub(crate) fn message(namespace: &[u8]) -> Self {
        Self::Message { namespace: printable_up_to(namespace, MAX_WORD) }
    }

    /// Who makes a commit or a tag.
    pub(crate) const fn maker(&self) -> Option<&Person> {
        match self {
            Self::Commit { committer, .. } => Some(committer),
            Self::Tag { tagger, .. } => Some(tagger),
            Self::Hash
            | Self::SessionKey
            | Self::Login { .. }
            | Self::Message { .. }
            | Self::Data => None,
        }
    }
}

impl Person {
    fn of(identity: &Identity<'_>) -> Self {
        Self {
            name: printable_up_to(identity.name, MAX_WORD),
            email: printable_up_to(identity.email, MAX_WORD),
        }
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

/// What else is signed: other programs may read it.
fn fields(commit: &Commit<'_>) -> Vec<String> {
    let encoding =
        commit.encoding.map(|name| format!("encoding {}", printable_up_to(name, MAX_WORD)));
    let others = commit.others.iter().map(|name| printable_up_to(name, MAX_WORD));
    encoding.into_iter().chain(others).collect()
}

/// The lines of a message. Where it is too long to be shown, the last line says so.
fn lines(message: &[u8]) -> Vec<String> {
    let message = message.trim_ascii_end();
    let (mut shown, mut size) = (Vec::new(), 0);
    let mut lines = message.split(|&byte| byte == b'\n');
    while let Some(line) = lines.next() {
        let text = printable(line).to_string();
        size += text.len() + 1;
        if size > MAX_MESSAGE {
            shown.push(format!("… {} more lines, which aren't shown", 1 + lines.count()));
            break;
        }
        shown.push(text);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_line_by_line_and_says_what_is_left_out() {
        assert_eq!(lines(b"a\n\n\x1b[2J\xe2\x80\xae\n\n"), ["a", "", "\\u{1b}[2J\\u{202e}"]);
        let long = lines(&b"0123456789abcdef\n".repeat(4000));
        assert!(long.iter().map(|line| line.len() + 1).sum::<usize>() < MAX_MESSAGE + 100);
        let left_out = 4000 - (long.len() - 1);
        let last = long.last().unwrap();
        assert_eq!(last, &format!("… {left_out} more lines, which aren't shown"));
    }
}
