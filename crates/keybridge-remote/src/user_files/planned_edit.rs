//! An edit that a lane wants: lines in a file of the user's, and the files of ours that they name.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::marked_block::MarkedBlock;
use crate::error::Error;
use crate::footprint::{Change, Footprint};
use crate::home::safe_path::{euid, replace_by_rename};

/// Lines of ours in a file of the user's, and what it means if they can't be put there.
#[derive(Debug, Clone)]
pub(crate) struct PlannedEdit {
    pub(crate) block: MarkedBlock,
    /// Created before the lines are put in.
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) importance: Importance,
}

/// Whether a lane works without an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Importance {
    /// It doesn't.
    Needed,
    /// It does, with a warning that begins with this.
    Wanted(&'static str),
}

/// How much of a file is compared at a time.
const PIECE: u64 = 64 * 1024;

/// A file of ours.
#[derive(Debug, Clone)]
pub(crate) struct PlannedFile {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Text(Vec<u8>),
    Program(Vec<u8>),
    /// A copy of this program.
    Copy(PathBuf),
    /// A link to this file.
    Link(PathBuf),
}

impl PlannedEdit {
    /// Whether a change is a part of this edit.
    pub(crate) fn includes(&self, change: &Change) -> bool {
        let is_file = |path: &PathBuf| self.files.iter().any(|file| file.path == *path);
        matches!(change, Change::EditedFile(block) if block.path() == self.block.path())
            || matches!(change, Change::CreatedFile(path) if is_file(path))
    }

    /// Makes the edit, each step on record before it is made.
    pub(crate) fn make(&self, footprint: &Footprint) -> Result<(), Error> {
        for file in &self.files {
            footprint.record(Change::CreatedFile(file.path.clone()))?;
            file.create().map_err(|error| Error::io("create", &file.path, error))?;
        }
        let change = Change::EditedFile(self.block.clone());
        let was_made_before = footprint.changes().contains(&change);
        footprint.record(change.clone())?;
        if let Err(error) = self.block.put() {
            // What can't be put in is rolled back.
            if !was_made_before {
                footprint.forget(|other| *other == change)?;
            }
            return Err(error.into());
        }
        // Lines that an earlier helper put there are replaced.
        let is_replaced =
            |block: &MarkedBlock| block.path() == self.block.path() && *block != self.block;
        footprint.forget(|change| matches!(change, Change::EditedFile(block) if is_replaced(block)))
    }
}

impl PlannedFile {
    pub(crate) fn new(path: PathBuf, content: impl Into<Vec<u8>>) -> Self {
        Self { path, content: Content::Text(content.into()) }
    }

    pub(crate) fn program(path: PathBuf, content: impl Into<Vec<u8>>) -> Self {
        Self { path, content: Content::Program(content.into()) }
    }

    pub(crate) const fn copy(path: PathBuf, of: PathBuf) -> Self {
        Self { path, content: Content::Copy(of) }
    }

    pub(crate) const fn link(path: PathBuf, to: PathBuf) -> Self {
        Self { path, content: Content::Link(to) }
    }

    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates it, in the place of one that an earlier helper left. A link there is not followed. git may use
    /// it at any moment, so one that is the same stays, and another one is renamed over.
    pub(crate) fn create(&self) -> io::Result<()> {
        if !self.is_there().unwrap_or(false) {
            replace_by_rename(&self.path, |beside| self.write(beside))?;
        }
        match self.content {
            Content::Text(_) => Ok(()),
            // A file system can forbid programs.
            Content::Program(_) | Content::Copy(_) | Content::Link(_) => {
                access(&self.path, Access::EXEC_OK).map_err(io::Error::from)
            }
        }
    }

    /// Whether there is one that is the same.
    fn is_there(&self) -> io::Result<bool> {
        let found = std::fs::symlink_metadata(&self.path)?;
        match self.content.source()? {
            Source::Link(to) => Ok(found.is_symlink() && std::fs::read_link(&self.path)? == to),
            Source::Bytes(mode, content) => {
                let is_alike =
                    found.is_file() && (found.uid(), found.mode() & 0o7777) == (euid(), mode);
                Ok(is_alike && are_equal(content, File::open(&self.path)?)?)
            }
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        match self.content.source()? {
            Source::Link(to) => std::os::unix::fs::symlink(to, path),
            Source::Bytes(mode, mut content) => {
                let mut options = OpenOptions::new();
                let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
                io::copy(&mut content, &mut file).map(drop)
            }
        }
    }
}

/// What a file is made of.
enum Source<'a> {
    /// Its mode and its content.
    Bytes(u32, Box<dyn Read + 'a>),
    Link(&'a Path),
}

impl Content {
    fn source(&self) -> io::Result<Source<'_>> {
        Ok(match self {
            Self::Text(content) => Source::Bytes(0o600, Box::new(&**content)),
            Self::Program(content) => Source::Bytes(0o700, Box::new(&**content)),
            Self::Copy(of) => Source::Bytes(0o700, Box::new(File::open(of)?)),
            Self::Link(to) => Source::Link(to),
        })
    }
}

/// Whether the same bytes come from both.
fn are_equal(mut one: impl Read, mut other: impl Read) -> io::Result<bool> {
    loop {
        let (mut piece, mut others) = (Vec::new(), Vec::new());
        one.by_ref().take(PIECE).read_to_end(&mut piece)?;
        other.by_ref().take(PIECE).read_to_end(&mut others)?;
        if piece != others {
            return Ok(false);
        }
        if piece.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

    use super::*;
    use crate::home::safe_path::beside;

    const NAMES: [&str; 4] = ["text", "program", "copy", "link"];

    /// One of each kind.
    fn files(folder: &Path, content: &str) -> [PlannedFile; 4] {
        let other = folder.join(content);
        std::fs::write(&other, content.repeat(100_000)).unwrap();
        let [text, program, copy, link] = NAMES.map(|name| folder.join(name));
        [
            PlannedFile::new(text, content),
            PlannedFile::program(program.clone(), content),
            PlannedFile::copy(copy.clone(), other),
            PlannedFile::link(link, if content == "old" { program } else { copy }),
        ]
    }

    fn create(files: &[PlannedFile]) {
        for file in files {
            file.create().unwrap();
        }
    }

    fn inodes(files: &[PlannedFile]) -> Vec<u64> {
        files.iter().map(|file| std::fs::symlink_metadata(&file.path).unwrap().ino()).collect()
    }

    #[test]
    fn a_file_that_is_the_same_stays() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), "old");
        create(&files);
        let before = inodes(&files);
        create(&files);
        assert_eq!(inodes(&files), before);
        // Not one that only begins like it, or that others may read.
        let [text, program, copy, _] = &files;
        std::fs::write(&program.path, "old and more").unwrap();
        std::fs::write(&copy.path, "old".repeat(99_999)).unwrap();
        std::fs::set_permissions(&text.path, PermissionsExt::from_mode(0o644)).unwrap();
        create(&files);
        let after = inodes(&files);
        assert!(before.iter().zip(&after).take(3).all(|(before, after)| before != after));
        assert!(files.iter().all(|file| file.is_there().unwrap()));
    }

    #[test]
    fn a_file_is_never_absent_while_another_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (older, newer) = (files(folder.path(), "old"), files(folder.path(), "new"));
        create(&older);
        std::fs::write(beside(&newer[0].path), "what a kill has left").unwrap();
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, folder.path(), WatchFlags::ALL_EVENTS).unwrap();
        let mut running = File::open(&older[2].path).unwrap();
        create(&newer);
        assert!(newer.iter().all(|file| file.is_there().unwrap()));
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut events = Reader::new(&watch, &mut buffer);
        let mut arrived = Vec::new();
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(name) = name.filter(|name| NAMES.contains(&name.as_str())) else { continue };
            let gone = ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MODIFY;
            assert!(!event.events().intersects(gone), "{name}: {:?}", event.events());
            if event.events().contains(ReadFlags::MOVED_TO) {
                arrived.push(name);
            }
        }
        assert_eq!(arrived, NAMES);
        // Who has it open has all of the older one.
        let mut content = String::new();
        running.read_to_string(&mut content).unwrap();
        assert_eq!(content, "old".repeat(100_000));
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, NAMES.len() + 2, "something is left beside them");
    }
}
