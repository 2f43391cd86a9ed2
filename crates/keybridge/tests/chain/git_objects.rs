//! What the host would sign means the same to git, and to a reader that has nothing in common with ours.

use std::path::PathBuf;
use std::sync::LazyLock;

use gix_hash::Kind;
use keybridge_proto::git::{Commit, Identity, Object, Tag};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::lab::{command, feed, run, short_folder, text};

const SHA1: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

/// Lines that two readers could take in two ways.
const LINES: &[&str] = &[
    "",
    " ",
    " x",
    "\r",
    "\rtree x",
    "\t",
    "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "tree 89abcdef0123456789abcdef0123456789abcdef",
    "parent 0123456789abcdef0123456789abcdef01234567",
    "parent 0123456789ABCDEF0123456789ABCDEF01234567",
    "parent 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "parent ",
    "author A <a@x> 1700000000 +0100",
    "author B <b@x> 1700000000 -0000",
    "author  <> 0 +0000",
    "author A  <a b@x> 9223372036854775807 +9999",
    "author A <a@x> 9223372036854775808 +0000",
    "author A <a@x>  1 +0000",
    "author A <a@x> 01 +0000",
    "author A <a@x> 1 +0000 ",
    "author A <a@x> -1 +0000",
    "author A > <a@x> 1 +0000",
    "author A <a@x> 1 +00000",
    "author <a@x> 1 +0000",
    "committer C <c@x> 1700000001 +0000",
    "committer C\u{fc} <c@x> 1 -1200",
    "committer C\rD <c@x> 1 -1200",
    "encoding ISO-8859-1",
    "encoding x y",
    "encoding ",
    "mergetag object 0123456789abcdef0123456789abcdef01234567",
    " type commit",
    " -----BEGIN PGP SIGNATURE-----",
    "gpgsig x",
    "gpgsig-sha256 x",
    "gpgsig2 x",
    "GPGSIG x",
    "change-id zyx",
    "HG:extra a:b",
    "x",
    "x ",
    "x  y",
    "\u{fc} y",
    "object 0123456789abcdef0123456789abcdef01234567",
    "type commit",
    "type blob",
    "type x",
    "tag v1",
    "tag a/b",
    "tag a b",
    "tag v1.lock",
    "tagger T <t@x> 1 +0000",
    "tagger T <t@x> 1",
    "-----BEGIN PGP SIGNATURE-----",
    "-----BEGIN SSH SIGNATURE-----",
    "-----END PGP SIGNATURE-----",
    "a message",
];

/// A repository of each kind of id.
struct Repositories {
    folder: TempDir,
}

static REPOSITORIES: LazyLock<Repositories> = LazyLock::new(|| {
    let folder = short_folder("kbo");
    for format in ["sha1", "sha256"] {
        let option = format!("--object-format={format}");
        run(command("git").args(["init", "--quiet", &option]).arg(folder.path().join(format)));
    }
    Repositories { folder }
});

impl Repositories {
    fn of(&self, kind: Kind) -> PathBuf {
        self.folder.path().join(match kind {
            Kind::Sha256 => "sha256",
            _ => "sha1",
        })
    }

    /// Whether git takes an object.
    fn accepts(&self, kind: Kind, what: &str, bytes: &[u8]) -> Result<(), String> {
        let mut git = command("git");
        git.arg("-C").arg(self.of(kind)).args(["hash-object", "-t", what, "--stdin"]);
        let output = feed(&mut git, bytes);
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    }
}

fn kind_of(id: &str) -> Kind {
    if id.len() == 64 { Kind::Sha256 } else { Kind::Sha1 }
}

/// What an object means to the others, if it is one to us.
fn agrees(bytes: &[u8]) -> Result<bool, TestCaseError> {
    match Object::read(bytes) {
        Err(_) => return Ok(false),
        Ok(Object::Commit(ours)) => commit_agrees(&ours, bytes)?,
        Ok(Object::Tag(ours)) => tag_agrees(&ours, bytes)?,
    }
    Ok(true)
}

fn commit_agrees(ours: &Commit<'_>, bytes: &[u8]) -> Result<(), TestCaseError> {
    let kind = kind_of(ours.tree.as_str());
    prop_assert_eq!(REPOSITORIES.accepts(kind, "commit", bytes), Ok(()));
    let theirs = gix_object::CommitRef::from_bytes(bytes, kind)
        .map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
    prop_assert_eq!(theirs.tree, ours.tree.as_str());
    let parents: Vec<&str> = ours.parents.iter().map(|parent| parent.as_str()).collect();
    prop_assert_eq!(theirs.parents.as_slice(), parents);
    let (author, committer) = (theirs.author().unwrap(), theirs.committer().unwrap());
    identity_agrees(author.name, author.email, author.time, ours.author)?;
    identity_agrees(committer.name, committer.email, committer.time, ours.committer)?;
    prop_assert_eq!(theirs.encoding.map(AsRef::<[u8]>::as_ref), ours.encoding);
    let others: Vec<&[u8]> = theirs.extra_headers.iter().map(|(name, _)| name.as_ref()).collect();
    prop_assert_eq!(&others, &ours.others);
    prop_assert_eq!(theirs.message, ours.message);
    Ok(())
}

fn tag_agrees(ours: &Tag<'_>, bytes: &[u8]) -> Result<(), TestCaseError> {
    let kind = kind_of(ours.object.as_str());
    prop_assert_eq!(REPOSITORIES.accepts(kind, "tag", bytes), Ok(()));
    let theirs = gix_object::TagRef::from_bytes(bytes, kind)
        .map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
    prop_assert_eq!(theirs.target, ours.object.as_str());
    prop_assert_eq!(theirs.target_kind.as_bytes(), ours.kind);
    prop_assert_eq!(theirs.name, ours.name);
    let tagger = theirs.tagger().unwrap().unwrap();
    identity_agrees(tagger.name, tagger.email, tagger.time, ours.tagger)?;
    // It counts the empty line before a message that has nothing but empty lines.
    let is_empty = ours.message.iter().all(|&byte| byte == b'\n');
    let message: &[u8] = theirs.message;
    prop_assert_eq!(if is_empty { &message[1..] } else { message }, ours.message);
    prop_assert_eq!(theirs.signature, None);
    Ok(())
}

fn identity_agrees(
    name: &[u8],
    email: &[u8],
    time: &str,
    ours: Identity<'_>,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(name, ours.name);
    prop_assert_eq!(email, ours.email);
    let zone = String::from_utf8_lossy(ours.zone);
    prop_assert_eq!(time, format!("{} {zone}", ours.time));
    Ok(())
}

/// A commit or a tag of git's, in lines.
fn whole_objects() -> Vec<Vec<&'static str>> {
    let (author, committer) = ("author A <a@x> 1700000000 +0100", "committer C <c@x> 1 -0000");
    let parent = "parent 0123456789abcdef0123456789abcdef01234567";
    vec![
        vec![TREE, author, committer, "", "subject", "", "body", ""],
        vec![TREE, parent, parent, author, committer, "encoding latin1", "change-id x", "", ""],
        vec![TREE, author, committer, MERGE_TAG, " type commit", " ", " x", "", "merge", ""],
        vec![TREE_256, author, committer, "HG:extra a:b", "", "x"],
        vec![OBJECT, "type commit", "tag v1", "tagger T <t@x> 1 +0000", "", "v1", ""],
        vec![OBJECT, "type tag", "tag a/b", "tagger T <t@x> 0 +0000", "", ""],
    ]
}

const TREE: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const TREE_256: &str = "tree 6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
const MERGE_TAG: &str = "mergetag object 0123456789abcdef0123456789abcdef01234567";
const OBJECT: &str = "object 0123456789abcdef0123456789abcdef01234567";

/// A change of a line, at the place of which there are so many.
#[derive(Debug, Clone)]
enum Change {
    Insert(usize, usize),
    Replace(usize, usize),
    Remove(usize),
    Double(usize),
    Swap(usize, usize),
    Byte(usize, u8),
    Cut(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let (place, line) = (0..12_usize, 0..LINES.len());
    let interesting = prop::sample::select(b"\0\n\r\t <>09afAF+-\xfc\xff\x1b".to_vec()).boxed();
    prop_oneof![
        4 => (place.clone(), line.clone()).prop_map(|(at, line)| Change::Insert(at, line)),
        3 => (place.clone(), line).prop_map(|(at, line)| Change::Replace(at, line)),
        1 => place.clone().prop_map(Change::Remove),
        1 => place.clone().prop_map(Change::Double),
        1 => (place.clone(), place).prop_map(|(one, other)| Change::Swap(one, other)),
        2 => (0..300_usize, interesting).prop_map(|(at, byte)| Change::Byte(at, byte)),
        1 => (0..300_usize).prop_map(Change::Cut),
    ]
}

fn changed(lines: &[&'static str], changes: &[Change]) -> Vec<u8> {
    let mut lines = lines.to_vec();
    for change in changes {
        let many = lines.len();
        match *change {
            Change::Insert(at, line) => lines.insert(at % (many + 1), LINES[line]),
            Change::Replace(at, line) if many > 0 => lines[at % many] = LINES[line],
            Change::Remove(at) if many > 0 => drop(lines.remove(at % many)),
            Change::Double(at) if many > 0 => lines.insert(at % many, lines[at % many]),
            Change::Swap(one, other) if many > 0 => lines.swap(one % many, other % many),
            _ => {}
        }
    }
    let mut bytes = lines.join("\n").into_bytes();
    for change in changes {
        let many = bytes.len();
        match *change {
            Change::Byte(at, byte) if many > 0 => bytes[at % many] = byte,
            Change::Cut(at) if many > 0 => bytes.truncate(at % many),
            _ => {}
        }
    }
    bytes
}

#[test]
fn what_git_writes_is_read() {
    for lines in whole_objects() {
        let bytes = lines.join("\n");
        assert!(agrees(bytes.as_bytes()).unwrap(), "{bytes}");
    }
}

#[test]
fn objects_that_fooled_others_are_refused() {
    let author = "author A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000";
    for bytes in [
        // CVE-2026-44309, CVE-2026-45022: equal headers, of which git reads the first.
        format!("tree {SHA1}\ntree {}\n{author}\n\nx\n", "0".repeat(40)),
        format!("tree {SHA1}\n{author}\ntree {}\n\nx\n", "0".repeat(40)),
        format!("tree {SHA1}\nauthor B <b@x> 1 +0000\n{author}\n\nx\n"),
        // Git passes over every header that begins like this.
        format!("tree {SHA1}\n{author}\ngpgsig2 x\n y\n\nx\n"),
        // A line that ends a header to some.
        format!("tree {SHA1}\n{author}\n\r\ntree {SHA1}\n\nx\n"),
        format!("tree {SHA256}\nparent {SHA1}\n{author}\n\nx\n"),
    ] {
        assert!(!agrees(bytes.as_bytes()).unwrap(), "{bytes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Whatever is read means the same to git and to the other reader.
    #[test]
    fn whatever_is_read_means_the_same_to_others(
        which in 0..6_usize,
        changes in vec(change(), 0..4),
    ) {
        let bytes = changed(&whole_objects()[which], &changes);
        agrees(&bytes)?;
    }

    #[test]
    fn a_message_can_be_any_bytes_but_nul(which in 0..6_usize, message in vec(1..=255_u8, 0..200)) {
        let mut bytes = whole_objects()[which].join("\n").into_bytes();
        let header = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap() + 2;
        bytes.truncate(header);
        bytes.extend(message);
        prop_assert!(agrees(&bytes)?);
    }
}
