//! A question as a person reads it. What a target can choose the words of is marked, line by line.

use keybridge_proto::permission::{AskedBy, Decided, Person, Subject, Wanted};
use keybridge_proto::{Operation, printable};

use super::{Asked, Ended};
use crate::output::cut;
use crate::target::TargetAddress;

/// How much of an object's id is shown.
const SHORT_ID: usize = 7;

/// How many characters of a line a small window shows.
const LONGEST_LINE: usize = 72;

/// A question, in parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Description<'a> {
    /// Who wants what.
    pub(super) headline: String,
    /// The message that is to be signed, line by line.
    pub(super) message: &'a [String],
    /// What else the host has read.
    pub(super) details: Vec<String>,
}

impl<'a> Description<'a> {
    pub(super) fn of(target: &TargetAddress, asked: &'a Asked) -> Self {
        let Asked { wanted, key, why, .. } = asked;
        let (message, mut details): (&[String], _) = match &wanted.subject {
            Subject::Commit { tree, parents, author, committer, fields, message } => {
                let mut details = commit(tree, parents, author, committer);
                if !fields.is_empty() {
                    details.push(format!("with the header fields {}", fields.join(", ")));
                }
                (message, details)
            }
            Subject::Tag { name, object, tagger, message } => {
                let tag = format!("{name}, of {}, by {tagger}", abbreviated(object));
                (message, vec![tag])
            }
            Subject::Login { host: Some(host), .. } => {
                (&[], vec![format!("at the host with the key {host}")])
            }
            Subject::Login { host: None, .. } => {
                (&[], vec!["at a host that hasn't shown its key".to_owned()])
            }
            Subject::Hash | Subject::SessionKey | Subject::Message { .. } | Subject::Data => {
                (&[], Vec::new())
            }
        };
        details.push(format!("with {}", printable(key)));
        match why {
            AskedBy::Rule => {}
            AskedBy::Limit => {
                details.push("the key was used as often as its limit says".to_owned());
            }
        }
        Self { headline: format!("{} wants {}", name_of(target), what(wanted)), message, details }
    }
}

/// A question for a small window, which can't show more of a message.
pub(super) fn short(target: &TargetAddress, asked: &Asked) -> String {
    let Description { headline, message, details } = Description::of(target, asked);
    let mut lines = vec![headline];
    if let Some((subject, more)) = message.split_first() {
        lines.push(format!("| {subject}"));
        match more.len() {
            0 => {}
            1 => lines.push("and 1 more line".to_owned()),
            count => lines.push(format!("and {count} more lines")),
        }
    }
    lines.extend(details);
    let lines: Vec<String> = lines.iter().map(|line| cut(line, LONGEST_LINE)).collect();
    lines.join("\n")
}

/// A target as people speak of it.
pub(super) fn name_of(target: &TargetAddress) -> String {
    match target {
        TargetAddress::Docker(name) => format!("{} (docker)", printable(name)),
        TargetAddress::Podman(name) => format!("{} (podman)", printable(name)),
        TargetAddress::Here
        | TargetAddress::Local(_)
        | TargetAddress::Container(_)
        | TargetAddress::Ssh(_)
        | TargetAddress::Wsl(_)
        | TargetAddress::Exec(_)
        | TargetAddress::Editor(_) => target.to_string(),
    }
}

/// What is wanted, after `wants`.
pub(super) fn what(wanted: &Wanted) -> String {
    match &wanted.subject {
        Subject::Commit { .. } => "a commit signed".to_owned(),
        Subject::Tag { .. } => "a tag signed".to_owned(),
        Subject::Hash if wanted.operations.has(Operation::Certify) => {
            "a hash signed, which may certify a key".to_owned()
        }
        Subject::Hash => "a hash signed, of whatever it may be".to_owned(),
        Subject::SessionKey => "something decrypted".to_owned(),
        Subject::Login { user, .. } => format!("to log in as {user}"),
        Subject::Message { namespace } => {
            format!("a message signed with ssh, of the kind {namespace}")
        }
        Subject::Data => "data signed with ssh, of whatever it may be".to_owned(),
    }
}

/// How a question has ended, in a few words.
pub(super) fn how(ended: &Ended) -> String {
    match ended {
        Ended::Decided(Decided::Settings) => "yes, by the settings".to_owned(),
        Ended::Decided(Decided::Person(way)) => format!("yes, by {}", printable(way)),
        Ended::Decided(Decided::EarlierYes) => "yes, for 15 min".to_owned(),
        Ended::Decided(Decided::Refused(refusal)) => format!("refused: {refusal}"),
        Ended::Gone => "its client has gone".to_owned(),
    }
}

fn commit(tree: &str, parents: &[String], author: &Person, committer: &Person) -> Vec<String> {
    let ids: Vec<&str> = parents.iter().map(|id| abbreviated(id)).collect();
    let parents = match ids.as_slice() {
        [] => "no parent".to_owned(),
        [id] => format!("parent {id}"),
        ids => format!("parents {}", ids.join(" ")),
    };
    let mut details = vec![format!("{author}, {parents}, tree {}", abbreviated(tree))];
    if author != committer {
        details.push(format!("committed by {committer}"));
    }
    details
}

fn abbreviated(id: &str) -> &str {
    id.get(..SHORT_ID).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asking::commit_of;

    #[test]
    fn a_commit_is_described_with_all_that_is_signed() {
        let mut asked = commit_of(1, &["x"]);
        let Subject::Commit { fields, .. } = &mut asked.wanted.subject else { panic!() };
        *fields = vec!["encoding ISO-8859-1".to_owned(), "change-id".to_owned()];
        let target = "docker://web".parse().unwrap();
        let details = Description::of(&target, &asked).details;
        assert_eq!(details[1], "with the header fields encoding ISO-8859-1, change-id");
    }
}
