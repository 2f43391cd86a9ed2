//! What git wants to be signed: any lines in any order. What is read as a commit or a tag is one in git's own
//! form, and nothing of it is lost.
#![no_main]

use arbitrary::Arbitrary;
use keybridge_proto::git::{Identity, Object};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Part<'a> {
    Field { field: u8, value: Value<'a> },
    Continued(&'a [u8]),
    Raw(&'a [u8]),
    EmptyLine,
}

#[derive(Arbitrary, Debug)]
enum Value<'a> {
    Id { is_long: bool },
    Identity { name: &'a [u8], email: &'a [u8], time: i64, zone: u16 },
    Type(u8),
    Any(&'a [u8]),
}

const FIELDS: [&str; 13] = [
    "tree",
    "parent",
    "author",
    "committer",
    "encoding",
    "object",
    "type",
    "tag",
    "tagger",
    "mergetag",
    "change-id",
    "gpgsig",
    "TREE",
];

fuzz_target!(|parts: Vec<Part<'_>>| {
    let bytes: Vec<u8> = parts.iter().flat_map(written).collect();
    let Ok(object) = Object::read(&bytes) else { return };
    assert!(bytes.ends_with(&[b"\n\n", object.message()].concat()));
    assert!(!bytes.contains(&0));
    let known = match &object {
        Object::Commit(commit) => {
            let mut header = format!("tree {}\n", commit.tree.as_str()).into_bytes();
            for parent in &commit.parents {
                header.extend(format!("parent {}\n", parent.as_str()).bytes());
            }
            header.extend(identity("author", &commit.author));
            header.extend(identity("committer", &commit.committer));
            if let Some(encoding) = commit.encoding {
                header.extend([b"encoding ", encoding, b"\n"].concat());
            }
            header
        }
        Object::Tag(tag) => {
            let mut header = format!("object {}\n", tag.object.as_str()).into_bytes();
            header.extend([b"type ", tag.kind, b"\ntag ", tag.name, b"\n"].concat());
            header.extend(identity("tagger", &tag.tagger));
            header
        }
    };
    assert!(bytes.starts_with(&known));
    let is_all = bytes.len() == known.len() + 1 + object.message().len();
    let has_others = matches!(&object, Object::Commit(commit) if !commit.others.is_empty());
    assert_ne!(is_all, has_others);
});

fn written(part: &Part<'_>) -> Vec<u8> {
    match part {
        Part::Field { field, value } => {
            let name = FIELDS[usize::from(*field) % FIELDS.len()];
            [name.as_bytes(), b" ", &value_of(value), b"\n"].concat()
        }
        Part::Continued(bytes) => [b" ", *bytes, b"\n"].concat(),
        Part::Raw(bytes) => bytes.to_vec(),
        Part::EmptyLine => b"\n".to_vec(),
    }
}

fn value_of(value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Id { is_long } => b"4b825dc6".repeat(if *is_long { 8 } else { 5 }),
        Value::Identity { name, email, time, zone } => {
            let rest = format!("> {time} +{:04}", zone % 10_000);
            [*name, b" <", email, rest.as_bytes()].concat()
        }
        Value::Type(which) => {
            ["commit", "tree", "blob", "tag", "x"][usize::from(*which) % 5].as_bytes().to_vec()
        }
        Value::Any(bytes) => bytes.to_vec(),
    }
}

fn identity(field: &str, of: &Identity<'_>) -> Vec<u8> {
    let time = of.time.to_string();
    let words = [field.as_bytes(), b" ", of.name, b" <", of.email, b"> ", time.as_bytes(), b" "];
    [&words.concat(), of.zone, b"\n"].concat()
}
