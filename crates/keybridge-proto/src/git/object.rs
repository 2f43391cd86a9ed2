//! Reads commits and tags, as git writes them before they are signed.
//!
//! ```text
//!  tree ID                              object ID
//!  parent ID          any number        type commit|tree|blob|tag
//!  author NAME <EMAIL> SECONDS ZONE     tag NAME
//!  committer …                          tagger NAME <EMAIL> SECONDS ZONE
//!  encoding NAME      at most one
//!  NAME VALUE         any other
//!                     an empty line
//!  the message
//! ```
//!
//! Every line of the header is one of these, in this order. Only a `mergetag` goes on over several lines,
//! and only it can come twice. Another field has no control character. Another form may mean one thing to git and another to somebody else who
//! reads the signed object.

use super::Identity;
use super::tag_name::is_tag_name;

/// What git may be asked to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object<'a> {
    /// A commit.
    Commit(Commit<'a>),
    /// An annotated tag.
    Tag(Tag<'a>),
}

/// A commit without a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit<'a> {
    /// The tree.
    pub tree: ObjectId<'a>,
    /// The commits that it follows.
    pub parents: Vec<ObjectId<'a>>,
    /// Who wrote it.
    pub author: Identity<'a>,
    /// Who made the commit.
    pub committer: Identity<'a>,
    /// The encoding of its texts, if it isn't UTF-8.
    pub encoding: Option<&'a [u8]>,
    /// The names of its other header fields.
    pub others: Vec<&'a [u8]>,
    /// The message.
    pub message: &'a [u8],
}

/// An annotated tag without a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag<'a> {
    /// What it names.
    pub object: ObjectId<'a>,
    /// The kind of that.
    pub kind: &'a [u8],
    /// The name of the tag.
    pub name: &'a [u8],
    /// Who made it.
    pub tagger: Identity<'a>,
    /// The message.
    pub message: &'a [u8],
}

/// The id of an object, in lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectId<'a>(&'a str);

/// Why bytes aren't a commit or a tag that is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A NUL anywhere.
    #[error("it has a NUL")]
    Nul,
    /// The empty line after the header is missing.
    #[error("its header has no end")]
    Unfinished,
    /// A line that has to be there is another one.
    #[error("expected a line {0:?}, got another one")]
    Expected(&'static str),
    /// The line is there, and its value is wrong.
    #[error("its line {0:?} is malformed")]
    Malformed(&'static str),
    /// A CR in a line of the header, which some readers take for its end.
    #[error("its header has a CR")]
    CarriageReturn,
    /// A line that goes on where git writes one line.
    #[error("a line of its header goes on where git never writes that")]
    Continued,
    /// One in which ASCII is something else, so that the header is another one to who converts it.
    #[error("its encoding isn't one that keeps ASCII as it is")]
    Encoding,
    /// More fields than any program writes.
    #[error("its header has too many fields")]
    TooMany,
    /// A field after the known ones that isn't `NAME VALUE`.
    #[error("its header has a malformed line")]
    MalformedField,
    /// A field that can be there once, and at its own place alone.
    #[error("a field of its header comes twice, or at the wrong place")]
    Misplaced,
    /// A signature is there already.
    #[error("it has a signature already")]
    Signed,
    /// Ids of SHA-1 and of SHA-256.
    #[error("it has ids of two kinds")]
    MixedIds,
}

/// The fields that have a place, so they can't be among the others.
const PLACED: [&[u8]; 9] = [
    b"tree",
    b"parent",
    b"author",
    b"committer",
    b"encoding",
    b"object",
    b"type",
    b"tag",
    b"tagger",
];

/// How many other fields there may be: git writes none, and others write a few. Each is compared with all.
const MOST_OTHERS: usize = 64;

/// A tag that a merge brought in. There is one for each, and each goes on over several lines.
const MERGE_TAG: &[u8] = b"mergetag";

/// How git, and what it knows of, begins the signature in the message of a tag.
const SIGNATURES: [&[u8]; 4] = [
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
];

impl<'a> Object<'a> {
    /// Reads the bytes that git wants to be signed.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        if bytes.contains(&0) {
            return Err(Unreadable::Nul);
        }
        let end = memchr::memmem::find(bytes, b"\n\n").ok_or(Unreadable::Unfinished)?;
        let (header, message) = bytes.split_at_checked(end).ok_or(Unreadable::Unfinished)?;
        let message = message.get(2..).ok_or(Unreadable::Unfinished)?;
        let header = Header { lines: header.split(|&byte| byte == b'\n').peekable() };
        if bytes.starts_with(b"object ") {
            header.tag(message).map(Self::Tag)
        } else {
            header.commit(message).map(Self::Commit)
        }
    }

    /// Its message.
    pub const fn message(&self) -> &'a [u8] {
        match self {
            Self::Commit(commit) => commit.message,
            Self::Tag(tag) => tag.message,
        }
    }
}

/// The lines of a header that are still to be read.
struct Header<'a, L: Iterator<Item = &'a [u8]>> {
    lines: std::iter::Peekable<L>,
}

impl<'a, L: Iterator<Item = &'a [u8]>> Header<'a, L> {
    fn commit(mut self, message: &'a [u8]) -> Result<Commit<'a>, Unreadable> {
        let tree = self.id("tree")?;
        let mut parents = Vec::new();
        while self.lines.peek().is_some_and(|line| line.starts_with(b"parent ")) {
            let parent = self.id("parent")?;
            if parent.0.len() != tree.0.len() {
                return Err(Unreadable::MixedIds);
            }
            parents.push(parent);
        }
        let author = self.identity("author")?;
        let committer = self.identity("committer")?;
        let has_encoding = self.lines.peek().is_some_and(|line| line.starts_with(b"encoding "));
        let encoding = if has_encoding { Some(self.value("encoding")?) } else { None };
        if encoding.is_some_and(|name| name.is_empty() || !name.iter().all(u8::is_ascii_graphic)) {
            return Err(Unreadable::Malformed("encoding"));
        }
        if encoding.is_some_and(|name| !keeps_ascii(name)) {
            return Err(Unreadable::Encoding);
        }
        let others = self.others()?;
        Ok(Commit { tree, parents, author, committer, encoding, others, message })
    }

    fn tag(mut self, message: &'a [u8]) -> Result<Tag<'a>, Unreadable> {
        let object = self.id("object")?;
        let kind = self.value("type")?;
        if ![&b"commit"[..], b"tree", b"blob", b"tag"].contains(&kind) {
            return Err(Unreadable::Malformed("type"));
        }
        let name = self.value("tag")?;
        if !is_tag_name(name) {
            return Err(Unreadable::Malformed("tag"));
        }
        let tagger = self.identity("tagger")?;
        match self.lines.next() {
            None => {}
            Some([b' ', ..]) => return Err(Unreadable::Continued),
            Some(line) if is_signature(line) => return Err(Unreadable::Signed),
            Some(_) => return Err(Unreadable::Misplaced),
        }
        // Git takes the last of two signatures, and others take the first one.
        let mut lines = message.split(|&byte| byte == b'\n');
        if lines.any(|line| SIGNATURES.iter().any(|begin| line.starts_with(begin))) {
            return Err(Unreadable::Signed);
        }
        Ok(Tag { object, kind, name, tagger, message })
    }

    /// The value of the next line, which has to be this field.
    fn value(&mut self, field: &'static str) -> Result<&'a [u8], Unreadable> {
        let line = self.lines.next().unwrap_or_default();
        if line.contains(&b'\r') {
            return Err(Unreadable::CarriageReturn);
        }
        match line.strip_prefix(field.as_bytes()).and_then(|rest| rest.strip_prefix(b" ")) {
            Some(value) => Ok(value),
            None if line.starts_with(b" ") => Err(Unreadable::Continued),
            None => Err(Unreadable::Expected(field)),
        }
    }

    fn id(&mut self, field: &'static str) -> Result<ObjectId<'a>, Unreadable> {
        ObjectId::read(self.value(field)?).ok_or(Unreadable::Malformed(field))
    }

    fn identity(&mut self, field: &'static str) -> Result<Identity<'a>, Unreadable> {
        Identity::read(self.value(field)?).ok_or(Unreadable::Malformed(field))
    }

    /// The names of the fields that are left.
    fn others(mut self) -> Result<Vec<&'a [u8]>, Unreadable> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut left = MOST_OTHERS;
        while let Some(line) = self.lines.next() {
            if line.starts_with(b" ") {
                return Err(Unreadable::Continued);
            }
            if line.contains(&b'\r') {
                return Err(Unreadable::CarriageReturn);
            }
            if is_signature(line) {
                return Err(Unreadable::Signed);
            }
            let name = field_name(line).ok_or(Unreadable::MalformedField)?;
            let is_placed = PLACED.iter().any(|placed| placed.eq_ignore_ascii_case(name));
            let is_there = names.iter().any(|other| other.eq_ignore_ascii_case(name));
            if is_placed || (is_there && name != MERGE_TAG) {
                return Err(Unreadable::Misplaced);
            }
            if name == MERGE_TAG {
                self.merge_tag()?;
            } else if line.iter().any(u8::is_ascii_control) {
                return Err(Unreadable::MalformedField);
            } else {
                left = left.checked_sub(1).ok_or(Unreadable::TooMany)?;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// The lines with which a tag goes on. Only its message can have a CR, at the end of a line.
    fn merge_tag(&mut self) -> Result<(), Unreadable> {
        let mut in_message = false;
        while let Some(line) = self.lines.next_if(|line| line.starts_with(b" ")) {
            in_message |= line == b" ";
            let text = if in_message { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
            if text.contains(&b'\r') {
                return Err(Unreadable::CarriageReturn);
            }
        }
        Ok(())
    }
}

/// Whether a text of this encoding has ASCII where it has it as bytes. git converts the whole commit before it
/// reads it to show it. In UTF-7 a name can have a line feed, and after it another author.
fn keeps_ascii(encoding: &[u8]) -> bool {
    const NAMES: [&[u8]; 18] = [
        b"utf8",
        b"ascii",
        b"usascii",
        b"koi8r",
        b"koi8u",
        b"eucjp",
        b"euckr",
        b"euccn",
        b"euctw",
        b"gb2312",
        b"gbk",
        b"gb18030",
        b"big5",
        b"shiftjis",
        b"sjis",
        b"cp932",
        b"cp936",
        b"cp949",
    ];
    const FAMILIES: [&[u8]; 4] = [b"iso8859", b"latin", b"windows125", b"cp125"];
    let letters = encoding.iter().filter(|byte| !b"-_".contains(byte));
    let name: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    let is_number =
        |rest: &[u8]| matches!(rest.len(), 1..=2) && rest.iter().all(u8::is_ascii_digit);
    NAMES.contains(&&*name)
        || FAMILIES.iter().any(|family| name.strip_prefix(*family).is_some_and(is_number))
}

/// Git passes over every line of a header that begins like this when it verifies.
fn is_signature(line: &[u8]) -> bool {
    line.get(..6).is_some_and(|beginning| beginning.eq_ignore_ascii_case(b"gpgsig"))
}

/// The name in `NAME VALUE`.
fn field_name(line: &[u8]) -> Option<&[u8]> {
    let blank = memchr::memchr(b' ', line)?;
    let (name, value) = line.split_at_checked(blank)?;
    let is_named = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    (is_named && value.len() > 1).then_some(name)
}

impl<'a> ObjectId<'a> {
    /// Reads the digits of SHA-1 or SHA-256.
    fn read(digits: &'a [u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_id = matches!(digits.len(), 40 | 64) && digits.iter().all(is_digit);
        std::str::from_utf8(digits).ok().filter(|_| is_id).map(Self)
    }

    /// The digits.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}
