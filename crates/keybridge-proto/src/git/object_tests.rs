use super::{Object, Unreadable};

const TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const PARENT: &str = "0123456789abcdef0123456789abcdef01234567";
const AUTHOR: &str = "author A <a@x> 1700000000 +0100";
const COMMITTER: &str = "committer C <c@x> 1700000001 -0000";

/// A commit with these lines after the tree.
fn commit(lines: &[&str], message: &str) -> String {
    format!("tree {TREE}\n{}\n\n{message}", lines.join("\n"))
}

fn tag(lines: &[&str], message: &str) -> String {
    format!("{}\n\n{message}", lines.join("\n"))
}

fn refused(bytes: &str) -> Option<Unreadable> {
    Object::read(bytes.as_bytes()).err()
}

#[test]
fn a_commit_is_read_as_git_writes_it() {
    let text = commit(
        &[
            &format!("parent {PARENT}"),
            &format!("parent {TREE}"),
            AUTHOR,
            COMMITTER,
            "encoding ISO-8859-1",
            &format!("mergetag object {PARENT}"),
            " type commit",
            " tag v1",
            " ",
            " \r",
            " tree is a word of the message",
            " -----BEGIN PGP SIGNATURE-----",
            "mergetag object x",
            "change-id zyxw",
        ],
        "subject\n\ntree of the body\r\n\r\n",
    );
    let Ok(Object::Commit(read)) = Object::read(text.as_bytes()) else { panic!("{text}") };
    assert_eq!(read.tree.as_str(), TREE);
    assert_eq!(read.parents.iter().map(|id| id.as_str()).collect::<Vec<_>>(), [PARENT, TREE]);
    assert_eq!((read.author.name, read.author.time), (&b"A"[..], 1_700_000_000));
    assert_eq!((read.committer.email, read.committer.zone), (&b"c@x"[..], &b"-0000"[..]));
    assert_eq!(read.encoding, Some(&b"ISO-8859-1"[..]));
    assert_eq!(read.others, [&b"mergetag"[..], b"mergetag", b"change-id"]);
    assert_eq!(read.message, b"subject\n\ntree of the body\r\n\r\n");
}

#[test]
fn a_commit_may_have_no_parent_no_message_and_longer_ids() {
    let first = commit(&[AUTHOR, COMMITTER], "");
    let Ok(Object::Commit(read)) = Object::read(first.as_bytes()) else { panic!("{first}") };
    assert_eq!((read.parents.len(), read.message, read.encoding), (0, &b""[..], None));
    let long = PARENT.repeat(2)[..64].to_owned();
    let sha256 = format!("tree {long}\nparent {long}\n{AUTHOR}\n{COMMITTER}\n\nm\n");
    assert_eq!(refused(&sha256), None);
    let latin1 = [&b"tree "[..], TREE.as_bytes(), b"\nauthor J\xfcrgen <j@x> 1 +0000\n"].concat();
    let latin1 = [&latin1[..], COMMITTER.as_bytes(), b"\nencoding latin1\n\n\xfc\n"].concat();
    assert!(Object::read(&latin1).is_ok());
}

#[test]
fn a_tag_is_read_as_git_writes_it() {
    let object = format!("object {PARENT}");
    for (kind, message) in [("commit", "v1\n"), ("tree", ""), ("blob", "x"), ("tag", "a\n\nb\n")] {
        let text =
            tag(&[&object, &format!("type {kind}"), "tag v/1", "tagger T <t@x> 1 +0000"], message);
        let Ok(Object::Tag(read)) = Object::read(text.as_bytes()) else { panic!("{text}") };
        assert_eq!((read.object.as_str(), read.kind), (PARENT, kind.as_bytes()));
        assert_eq!((read.name, read.tagger.name), (&b"v/1"[..], &b"T"[..]));
        assert_eq!(read.message, message.as_bytes());
    }
}

#[test]
fn what_is_not_strictly_a_commit_is_refused() {
    use Unreadable as U;
    let parent = format!("parent {PARENT}");
    let upper = format!("parent {}", PARENT.to_uppercase());
    let long = format!("parent {}", &PARENT.repeat(2)[..64]);
    let tree = format!("tree {TREE}");
    for (expected, lines) in [
        // Fields that come twice, are missing, or stand elsewhere.
        (U::Expected("author"), vec![&*tree, AUTHOR, COMMITTER]),
        (U::Expected("author"), vec![COMMITTER, AUTHOR]),
        (U::Expected("author"), vec!["change-id x", AUTHOR, COMMITTER]),
        (U::Expected("author"), vec!["", AUTHOR, COMMITTER]),
        (U::Expected("committer"), vec![AUTHOR, AUTHOR, COMMITTER]),
        (U::Expected("committer"), vec![AUTHOR, &parent, COMMITTER]),
        (U::Expected("committer"), vec![AUTHOR]),
        (U::Expected("committer"), vec![AUTHOR, "encoding x", COMMITTER]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, COMMITTER]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, AUTHOR]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, &tree]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, &parent]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "Tree x"]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "tagger x"]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "encoding utf-8", "encoding y"]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "change-id x", "encoding y"]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "change-id x", "change-id y"]),
        (U::Misplaced, vec![AUTHOR, COMMITTER, "change-id x", "Change-Id y"]),
        // Lines that go on.
        (U::Continued, vec![&parent, " x", AUTHOR, COMMITTER]),
        (U::Continued, vec![AUTHOR, " x", COMMITTER]),
        (U::Continued, vec![AUTHOR, COMMITTER, " x"]),
        (U::Continued, vec![AUTHOR, COMMITTER, "encoding CP1252", " y"]),
        (U::Continued, vec![AUTHOR, COMMITTER, "change-id x", " y"]),
        // Signatures.
        (U::Signed, vec![AUTHOR, COMMITTER, "gpgsig -----BEGIN PGP SIGNATURE-----", " x"]),
        (U::Signed, vec![AUTHOR, COMMITTER, "gpgsig-sha256 x"]),
        (U::Signed, vec![AUTHOR, COMMITTER, "gpgsig2 x"]),
        (U::Signed, vec![AUTHOR, COMMITTER, "gpgsig"]),
        (U::Signed, vec![AUTHOR, COMMITTER, "GPGSIG x"]),
        (U::Signed, vec![AUTHOR, COMMITTER, "mergetag x", "gpgsigx"]),
        // Lines that end with a CR, and lines of only a CR.
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "\r"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "\r", "tree x"]),
        (U::CarriageReturn, vec!["\r", AUTHOR, COMMITTER]),
        (U::CarriageReturn, vec![AUTHOR, "committer C <c@x> 1 +0000\r"]),
        (U::CarriageReturn, vec!["author A\rB <a@x> 1 +0000", COMMITTER]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "x y\r"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "mergetag y\r", " z"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "mergetag y", " z\r", " ", " x"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "mergetag y", " \r", " x"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "mergetag y", " ", " z\rtree x"]),
        (U::CarriageReturn, vec![AUTHOR, COMMITTER, "mergetag y", " ", " z\r\r"]),
        // Values.
        (U::Malformed("parent"), vec![&upper, AUTHOR, COMMITTER]),
        (U::Malformed("parent"), vec!["parent 0123", AUTHOR, COMMITTER]),
        (U::Malformed("parent"), vec!["parent ", AUTHOR, COMMITTER]),
        (U::MixedIds, vec![&long, AUTHOR, COMMITTER]),
        (U::Malformed("author"), vec!["author A a@x 1 +0000", COMMITTER]),
        (U::Malformed("committer"), vec![AUTHOR, "committer C <c@x> 1"]),
        (U::Malformed("encoding"), vec![AUTHOR, COMMITTER, "encoding "]),
        (U::Malformed("encoding"), vec![AUTHOR, COMMITTER, "encoding a b"]),
        // To git these have another author, in the name of this one.
        (U::Encoding, vec!["author A +AAo-x <a@x> 1 -0000", COMMITTER, "encoding UTF-7"]),
        (U::Encoding, vec![AUTHOR, COMMITTER, "encoding UTF-16LE"]),
        (U::Encoding, vec![AUTHOR, COMMITTER, "encoding ISO-2022-JP"]),
        (U::Encoding, vec![AUTHOR, COMMITTER, "encoding IBM037"]),
        (U::Encoding, vec![AUTHOR, COMMITTER, "encoding JAVA"]),
        (U::Encoding, vec![AUTHOR, COMMITTER, "encoding latin1//TRANSLIT"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x "]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "\tx y"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x\ty z"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "ü z"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x y\tz"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x \x1b[2J"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x y\x0bauthor z"]),
        (U::MalformedField, vec![AUTHOR, COMMITTER, "x y\x7f"]),
    ] {
        let text = commit(&lines, "message\n");
        // An empty line ends the header, wherever it is.
        assert_eq!(refused(&text), Some(expected), "{text:?}");
    }
}

#[test]
fn other_fields_are_few() {
    let text = |count: usize| {
        let fields: Vec<_> = (0..count).map(|number| format!("x{number} y\n")).collect();
        let fields = fields.concat();
        format!("tree {TREE}\n{AUTHOR}\n{COMMITTER}\n{fields}\n")
    };
    assert_eq!(refused(&text(64)), None);
    assert_eq!(refused(&text(65)), Some(Unreadable::TooMany));
    // As many as fit: comparing each with each would take a minute.
    assert_eq!(refused(&text(100_000)), Some(Unreadable::TooMany));
}

#[test]
fn what_is_not_strictly_a_tag_is_refused() {
    use Unreadable as U;
    let object = format!("object {PARENT}");
    let (kind, name, tagger) = ("type commit", "tag v1", "tagger T <t@x> 1 +0000");
    for (expected, lines, message) in [
        (U::Malformed("object"), vec!["object x", kind, name, tagger], ""),
        (U::Expected("type"), vec![&*object, name, kind, tagger], ""),
        (U::Expected("type"), vec![&*object, &*object, kind, name, tagger], ""),
        (U::Malformed("type"), vec![&*object, "type commits", name, tagger], ""),
        (U::Malformed("tag"), vec![&*object, kind, "tag a b", tagger], ""),
        (U::Malformed("tag"), vec![&*object, kind, "tag ", tagger], ""),
        (U::Expected("tag"), vec![&*object, kind, "tag", tagger], ""),
        (U::Expected("tagger"), vec![&*object, kind, name], ""),
        (U::Malformed("tagger"), vec![&*object, kind, name, "tagger T"], ""),
        (U::Misplaced, vec![&*object, kind, name, tagger, tagger], ""),
        (U::Misplaced, vec![&*object, kind, name, tagger, "change-id x"], ""),
        (U::Misplaced, vec![&*object, kind, name, tagger, "\r"], ""),
        (U::Continued, vec![&*object, kind, name, tagger, " x"], ""),
        (U::Signed, vec![&*object, kind, name, tagger, "gpgsig-sha256 x"], ""),
        (U::CarriageReturn, vec![&*object, kind, "tag v1\r", tagger], ""),
        (U::Signed, vec![&*object, kind, name, tagger], "a\n-----BEGIN PGP SIGNATURE-----\n"),
        (U::Signed, vec![&*object, kind, name, tagger], "-----BEGIN SSH SIGNATURE-----"),
        (U::Signed, vec![&*object, kind, name, tagger], "-----BEGIN PGP MESSAGE----- x\n"),
        (U::Signed, vec![&*object, kind, name, tagger], "x\n-----BEGIN SIGNED MESSAGE-----"),
    ] {
        let text = tag(&lines, message);
        assert_eq!(refused(&text), Some(expected), "{text:?}");
    }
}

#[test]
fn a_nul_and_a_header_without_an_end_are_refused() {
    let whole = commit(&[AUTHOR, COMMITTER], "message\n");
    for at in 0..=whole.len() {
        let with_nul = [&whole[..at], "\0", &whole[at..]].concat();
        assert_eq!(refused(&with_nul), Some(Unreadable::Nul), "{at}");
    }
    let end = whole.find("\n\n").unwrap() + 2;
    for cut in 0..end {
        assert_eq!(refused(&whole[..cut]), Some(Unreadable::Unfinished), "{cut}");
    }
    for other in ["\n\n", "x\n\n", "certificate version 0.1\npusher x\n\ny", "blob\n\n"] {
        assert_eq!(refused(other), Some(Unreadable::Expected("tree")), "{other:?}");
    }
    assert_eq!(refused(&format!("\n{whole}")), Some(Unreadable::Expected("tree")));
    assert_eq!(refused(&format!("\r\n{whole}")), Some(Unreadable::CarriageReturn));
}
