//! The files of the record, and what is found in them.

use std::fs;
use std::path::PathBuf;

use keybridge_proto::Lane;
use keybridge_proto::permission::{Decided, Refusal};
use keybridge_proto::session::Outcome;
use tempfile::TempDir;

use super::Journal;
use super::journal::{OLDER, lines, read};
use super::line::{Line, NO_HASH, Signed, What, hash};
use super::verify::{Broken, Verified};

/// A record in a folder of its own.
struct Scene {
    folder: TempDir,
    journal: Journal,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Neither the folder nor its parent is there.
        let journal = Journal::new(folder.path().join("state/record"));
        Self { folder, journal }
    }

    fn with(count: u64) -> Self {
        let scene = Self::new();
        scene.append(count);
        scene
    }

    fn append(&self, count: u64) {
        for _ in 0..count {
            self.journal.append(line).unwrap();
        }
    }

    fn text(&self) -> Vec<u8> {
        fs::read(self.journal.newest()).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut text = self.text();
        change(&mut text);
        fs::write(self.journal.newest(), text).unwrap();
    }

    #[track_caller]
    fn verified(&self) -> Verified {
        match self.journal.verify().unwrap() {
            Ok(verified) => verified,
            Err(broken) => panic!("{broken}"),
        }
    }

    #[track_caller]
    fn broken(&self) -> String {
        let broken: Broken = self.journal.verify().unwrap().unwrap_err();
        broken.to_string().rsplit_once(std::path::MAIN_SEPARATOR).unwrap().1.to_owned()
    }
}

fn line(n: u64, prev: String) -> Line {
    let what = What::Operation {
        lane: Lane::Ssh,
        operations: [keybridge_proto::Operation::Login].into_iter().collect(),
        key: "SHA256:x".to_owned(),
        signed: Signed::Login { user: "git".to_owned(), host: None },
        decided: Some(Decided::Refused(Refusal::Limit)),
        result: Outcome::Refused,
        ms: 7,
    };
    let (target, id) = ("docker://web".to_owned(), "17".to_owned());
    Line { n, time: "2026-11-20T00:00:00Z".to_owned(), target, id, what, prev }
}

/// The places of the beginnings of lines.
fn starts(text: &[u8]) -> Vec<usize> {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    [0].into_iter().chain(ends).collect()
}

#[test]
fn lines_are_a_chain_from_the_first_one_on() {
    let scene = Scene::new();
    assert_eq!(scene.verified().lines, 0);
    scene.append(3);
    let text = scene.text();
    let lines: Vec<&[u8]> = lines(&text).collect();
    let read: Vec<Line> = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
    assert_eq!(read[0], line(1, NO_HASH.to_owned()));
    assert_eq!(read[2], line(3, hash(lines[1])));
    let last = hash(lines[2]);
    assert_eq!(scene.verified(), Verified { lines: 3, removed: 0, last, uncovered: 0 });
}

#[test]
fn any_changed_byte_is_found() {
    let scene = Scene::with(3);
    let text = scene.text();
    for at in 0..text.len() {
        scene.change(|text| text[at] ^= 1);
        assert!(scene.journal.verify().unwrap().is_err(), "byte {at}");
        fs::write(scene.journal.newest(), &text).unwrap();
    }
    let second =
        starts(&text)[1] + text[starts(&text)[1]..].iter().position(|b| *b == b'7').unwrap();
    scene.change(|text| text[second] = b'8');
    assert!(scene.broken().starts_with("record, line 2: it isn't as it was written"));
    fs::write(scene.journal.newest(), &text).unwrap();
    scene.verified();
}

#[test]
fn removed_lines_are_found_and_no_new_one_hides_them() {
    for (removed, why) in [
        (0, "record, line 1: it is the first one and has the number 2: 1 before it are missing"),
        (1, "record, line 2: its number is 3 after 1"),
        (2, "record: 1 at the end are missing: the last one is 2"),
    ] {
        let scene = Scene::with(3);
        let starts = starts(&scene.text());
        scene.change(|text| drop(text.drain(starts[removed]..starts[removed + 1])));
        assert_eq!(scene.broken(), why);
        scene.append(1);
        assert!(scene.journal.verify().unwrap().is_err(), "{why}");
    }
    let scene = Scene::with(3);
    fs::remove_file(scene.journal.newest()).unwrap();
    assert_eq!(scene.broken(), "record: 3 at the end are missing: the last one is 0");
    scene.append(1);
    assert!(scene.broken().contains("3 before it are missing"));
}

#[test]
fn a_lost_head_is_found_and_no_new_line_hides_it() {
    for content in [None, Some(""), Some("{}"), Some("x")] {
        let scene = Scene::with(3);
        let head = scene.journal.head();
        match content {
            None => fs::remove_file(&head).unwrap(),
            Some(content) => fs::write(&head, content).unwrap(),
        }
        assert_eq!(scene.broken(), "record.head: the last hash and the count are missing");
        scene.append(1);
        assert!(scene.broken().starts_with("record, line 3: it isn't as it was written"));
    }
}

#[test]
fn a_torn_last_line_stops_nothing_and_is_found() {
    let scene = Scene::with(3);
    scene.change(|text| text.truncate(text.len() - 9));
    assert!(scene.broken().starts_with("record, line 3: it has no end"));
    scene.append(2);
    assert!(scene.broken().starts_with("record, line 3: it isn't a line"));
    // The new ones are lines of their own.
    let text = scene.text();
    let read: Vec<Option<Line>> =
        lines(&text).map(|line| serde_json::from_slice(line).ok()).collect();
    let numbers: Vec<Option<u64>> = read.iter().map(|line| Some(line.as_ref()?.n)).collect();
    assert_eq!(numbers, [Some(1), Some(2), None, Some(4), Some(5)]);
}

#[test]
fn a_line_whose_writer_was_killed_before_it_wrote_the_hash_is_kept() {
    let scene = Scene::with(2);
    let head = fs::read(scene.journal.head()).unwrap();
    scene.append(1);
    fs::write(scene.journal.head(), head).unwrap();
    assert_eq!((scene.verified().lines, scene.verified().uncovered), (3, 1));
    scene.append(1);
    assert_eq!((scene.verified().lines, scene.verified().uncovered), (4, 0));
}

fn sizes(journal: &Journal) -> Vec<(PathBuf, usize)> {
    let all = journal.all_older().chain([journal.newest()]);
    all.map(|path| (path.clone(), read(&path).unwrap().len())).collect()
}

#[test]
fn old_files_go_and_the_chain_goes_over_from_one_to_the_next() {
    const LIMIT: u64 = 2000;
    let scene = Scene::new();
    let journal = scene.journal.clone().with_limit(LIMIT);
    for count in 1..=100 {
        journal.append(line).unwrap();
        let verified = scene.verified();
        assert_eq!(verified.lines + verified.removed, count);
        assert!(sizes(&journal).iter().all(|(_, size)| *size as u64 <= LIMIT));
    }
    assert!(scene.verified().removed > 50 && scene.verified().lines > 10);
    let kept = fs::read_dir(scene.folder.path().join("state/record")).unwrap().count();
    assert_eq!(kept, usize::try_from(OLDER).unwrap() + 2, "with the newest file and the head");
    // One that is gone from between, and the oldest one.
    let files: Vec<(PathBuf, Vec<u8>)> =
        sizes(&journal).into_iter().map(|(path, _)| (path.clone(), read(&path).unwrap())).collect();
    for (path, text) in &files {
        fs::remove_file(path).unwrap();
        assert!(scene.journal.verify().unwrap().is_err(), "{}", path.display());
        fs::write(path, text).unwrap();
    }
    scene.verified();
}

#[test]
fn several_writers_make_one_chain() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 50;
    let scene = Scene::new();
    std::thread::scope(|threads| {
        for _ in 0..WRITERS {
            threads.spawn(|| scene.append(EACH));
        }
    });
    assert_eq!(scene.verified().lines, WRITERS * EACH);
}

#[test]
fn what_cannot_be_written_is_an_error_and_leaves_the_chain_whole() {
    let scene = Scene::with(2);
    let newest = scene.journal.newest();
    let aside = newest.with_extension("aside");
    fs::rename(&newest, &aside).unwrap();
    fs::create_dir(&newest).unwrap();
    assert!(scene.journal.append(line).is_err());
    assert!(scene.journal.probe().is_err());
    fs::remove_dir(&newest).unwrap();
    fs::rename(&aside, &newest).unwrap();
    scene.journal.probe().unwrap();
    scene.append(1);
    assert_eq!(scene.verified().lines, 3);
}

crate::platform::tests_on_unix! {
#[test]
fn nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::with(1);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scene.journal.newest()), 0o600);
    assert_eq!(mode(&scene.journal.head()), 0o600);
    assert_eq!(mode(scene.journal.newest().parent().unwrap()), 0o700);
}
}
