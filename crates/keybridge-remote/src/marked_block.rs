//! Lines of ours in a file of the user's: a marked block at its end, put in and taken out in place,
//! so that links, bind mounts, mode and owner of the file stay.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A configuration file has some lines; this is far more.
const MAX_SIZE: u64 = 1024 * 1024;

const BEGIN: &[u8] = b"# >>> keybridge >>> ";
const END: &[u8] = b"# <<< keybridge <<<";

/// What gpg is to start in the place of an agent: nothing. gpg prints the path when it fails.
const NO_AGENT: &str = "agent-program /nonexistent/keybridge-is-down-run-keybridge-up\n";

/// A block of lines in one file.
#[derive(Debug, Clone)]
pub struct MarkedBlock {
    path: PathBuf,
    lines: String,
}

/// Why a file of the user's can't be edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// A folder, a pipe, a device.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// More than a configuration file is.
    #[error("{} is over {MAX_SIZE} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The system says no.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl EditError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotAFile { path } | Self::TooLong { path } | Self::Io { path, .. } => path,
        }
    }
}

impl MarkedBlock {
    /// A block of these lines, each with its LF.
    pub fn new(path: impl Into<PathBuf>, lines: impl Into<String>) -> Self {
        Self { path: path.into(), lines: lines.into() }
    }

    /// The block that keeps gpg from starting an agent of its own.
    pub fn gpg_conf(home: &Path) -> Self {
        Self::new(home.join("gpg.conf"), NO_AGENT)
    }

    /// Puts the block at the end of the file; one that was left over is replaced.
    pub fn put(&self) -> Result<(), EditError> {
        let (file, existed) = match self.open()? {
            Some(file) => (file, true),
            None => (self.create()?, false),
        };
        let content = self.content(&file)?;
        let rest = without_block(&content, &self.lines);
        let file_is_ours = !existed || (rest.file_is_ours && rest.content.is_empty());
        self.rewrite(&file, &content, &with_block(&rest.content, &self.lines, file_is_ours))
    }

    /// Takes the block out, and the file too if it is ours and holds nothing else.
    pub fn remove(&self) -> Result<(), EditError> {
        let Some(file) = self.open()? else { return Ok(()) };
        let content = self.content(&file)?;
        let rest = without_block(&content, &self.lines);
        if rest.file_is_ours && rest.content.is_empty() {
            // The file itself, not the user's link to it.
            return std::fs::canonicalize(&self.path)
                .and_then(std::fs::remove_file)
                .map_err(self.io("removing"));
        }
        self.rewrite(&file, &content, &rest.content)
    }

    fn open(&self) -> Result<Option<File>, EditError> {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            // A pipe in the file's place must not hold us up.
            .custom_flags(nonblocking)
            .open(&self.path);
        match options {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(EditError::NotAFile { path: self.path.clone() })
            }
            Err(error) => Err(self.io("opening")(error)),
        }
    }

    fn create(&self) -> Result<File, EditError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)
            .map_err(self.io("creating"))
    }

    fn content(&self, file: &File) -> Result<Vec<u8>, EditError> {
        let metadata = file.metadata().map_err(self.io("looking at"))?;
        if !metadata.is_file() {
            return Err(EditError::NotAFile { path: self.path.clone() });
        }
        let mut content = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(self.io("reading"))?;
        if content.len() as u64 > MAX_SIZE {
            return Err(EditError::TooLong { path: self.path.clone() });
        }
        Ok(content)
    }

    /// Writes what differs and then cuts the file, so that a crash between the two loses nothing of
    /// the user's.
    fn rewrite(&self, file: &File, old: &[u8], new: &[u8]) -> Result<(), EditError> {
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let tail = new.get(same..).unwrap_or_default();
        if !tail.is_empty() {
            file.write_all_at(tail, same as u64).map_err(self.io("writing"))?;
        }
        if new.len() < old.len() {
            file.set_len(new.len() as u64).map_err(self.io("shortening"))?;
        }
        Ok(())
    }

    fn io(&self, doing: &'static str) -> impl FnOnce(io::Error) -> EditError {
        let path = self.path.clone();
        move |source| EditError::Io { doing, path, source }
    }
}

/// The note in the first line of a block: what has to be undone beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Nothing,
    /// The user's last line had no end and got one.
    LineEndAdded,
    /// There was no file.
    FileIsOurs,
}

impl Note {
    const ALL: [Self; 3] = [Self::Nothing, Self::LineEndAdded, Self::FileIsOurs];

    const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "`keybridge down` removes these lines",
            Self::LineEndAdded => "`keybridge down` removes these lines and the line end before",
            Self::FileIsOurs => "`keybridge down` removes these lines and the file",
        }
    }
}

/// A file's content without the block.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    content: Vec<u8>,
    file_is_ours: bool,
}

fn with_block(content: &[u8], lines: &str, file_is_ours: bool) -> Vec<u8> {
    let open_line = content.last().is_some_and(|&byte| byte != b'\n');
    let note = if file_is_ours {
        Note::FileIsOurs
    } else if open_line {
        Note::LineEndAdded
    } else {
        Note::Nothing
    };
    let mut result = content.to_vec();
    if open_line {
        result.push(b'\n');
    }
    result.extend_from_slice(BEGIN);
    result.extend_from_slice(note.text().as_bytes());
    result.push(b'\n');
    result.extend_from_slice(lines.as_bytes());
    result.extend_from_slice(END);
    result.push(b'\n');
    result
}

fn without_block(content: &[u8], ours: &str) -> Rest {
    let mut rest = Rest { content: Vec::with_capacity(content.len()), file_is_ours: false };
    let lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
    let mut lines = lines.as_slice();
    while let Some((line, after)) = lines.split_first() {
        lines = after;
        let Some(note) = begin_note(line) else {
            rest.content.extend_from_slice(line);
            continue;
        };
        rest.file_is_ours |= note == Note::FileIsOurs;
        lines = after.get(block_size(after, ours)..).unwrap_or_default();
        if note == Note::LineEndAdded && lines.is_empty() && rest.content.ends_with(b"\n") {
            rest.content.pop();
        }
    }
    rest
}

/// How many lines after its first one belong to a block. Without its last line, which a crash or the
/// user took, only lines that we wrote do.
fn block_size(after: &[&[u8]], ours: &str) -> usize {
    let end = after
        .iter()
        .take_while(|line| begin_note(line).is_none())
        .position(|line| line.trim_ascii_end() == END);
    let is_ours = |line: &&&[u8]| {
        let line = line.trim_ascii_end();
        ours.lines().any(|our| our.as_bytes().starts_with(line)) || END.starts_with(line)
    };
    end.map_or_else(|| after.iter().take_while(is_ours).count(), |end| end + 1)
}

fn begin_note(line: &[u8]) -> Option<Note> {
    let text = line.trim_ascii_end().strip_prefix(BEGIN)?;
    Some(Note::ALL.into_iter().find(|note| note.text().as_bytes() == text).unwrap_or(Note::Nothing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINALS: [&[u8]; 8] = [
        b"",
        b"\n",
        b"# mine\nuse-agent\n",
        b"# mine\r\nagent-program /usr/bin/gpg-agent\r\n",
        b"no line end",
        b"crlf and no line end\r\nlast",
        b"ends with cr\r",
        b"\xff\0raw\n\n\n",
    ];

    #[test]
    fn what_is_left_is_the_original() {
        for original in ORIGINALS {
            for ours in [false, true] {
                let with = with_block(original, NO_AGENT, ours);
                assert!(with.ends_with(b"\n# <<< keybridge <<<\n"));
                let rest = without_block(&with, NO_AGENT);
                if !ours {
                    assert_eq!(rest, Rest { content: original.to_vec(), file_is_ours: false });
                }
                assert_eq!(rest.file_is_ours, ours);
            }
            let untouched = Rest { content: original.to_vec(), file_is_ours: false };
            assert_eq!(without_block(original, NO_AGENT), untouched);
        }
    }

    #[test]
    fn lines_that_were_added_after_the_block_are_kept() {
        for (original, left) in [(&b"mine\n"[..], &b"mine\nnew\n"[..]), (b"open", b"open\nnew\n")] {
            let mut with = with_block(original, NO_AGENT, false);
            with.extend_from_slice(b"new\n");
            assert_eq!(without_block(&with, NO_AGENT).content, left);
        }
    }

    #[test]
    fn a_block_without_its_end_takes_only_our_lines() {
        let with = with_block(b"mine\n", NO_AGENT, false);
        let begin = with.len() - END.len() - 1 - NO_AGENT.len();
        for cut in begin..with.len() {
            assert_eq!(without_block(&with[..cut], NO_AGENT).content, b"mine\n", "{cut}");
        }
        let mut with = with[..begin + NO_AGENT.len()].to_vec();
        with.extend_from_slice(b"keyserver x\n");
        assert_eq!(without_block(&with, NO_AGENT).content, b"mine\nkeyserver x\n");
    }

    #[test]
    fn a_block_with_other_line_ends_is_known() {
        let with = String::from_utf8(with_block(b"a\n", NO_AGENT, false)).unwrap();
        assert_eq!(
            without_block(with.replace('\n', "\r\n").as_bytes(), NO_AGENT).content,
            b"a\r\n"
        );
    }

    #[test]
    fn files_come_back_byte_for_byte_also_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        for original in ORIGINALS {
            let path = folder.path().join("gpg.conf");
            std::fs::write(&path, original).unwrap();
            let block = MarkedBlock::gpg_conf(folder.path());
            block.put().unwrap();
            let with = std::fs::read(&path).unwrap();
            // A helper that was killed left it; the next one begins again.
            block.put().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), with);
            block.remove().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), original);
            block.remove().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), original);
        }
    }

    #[test]
    fn a_file_that_was_not_there_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpg.conf");
        let block = MarkedBlock::gpg_conf(folder.path());
        block.put().unwrap();
        block.put().unwrap();
        block.remove().unwrap();
        assert!(!path.exists());
        block.put().unwrap();
        let mut with = std::fs::read(&path).unwrap();
        with.extend_from_slice(b"mine\n");
        std::fs::write(&path, &with).unwrap();
        block.put().unwrap();
        block.remove().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"mine\n");
    }

    #[test]
    fn links_and_modes_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("gpg.conf"), folder.path().join("dotfile"));
        std::fs::write(&file, b"mine").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &path).unwrap();
        let block = MarkedBlock::gpg_conf(folder.path());
        block.put().unwrap();
        assert!(std::fs::read(&file).unwrap().ends_with(b"<<<\n"));
        block.remove().unwrap();
        assert!(path.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
        // A link that leads nowhere yet: the file goes again, the link stays.
        std::fs::remove_file(&file).unwrap();
        block.put().unwrap();
        block.remove().unwrap();
        assert!(path.is_symlink() && !file.exists());
    }

    #[test]
    fn what_is_no_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpg.conf");
        std::fs::create_dir(&path).unwrap();
        let error = MarkedBlock::gpg_conf(folder.path()).put().unwrap_err();
        assert!(matches!(&error, EditError::NotAFile { path: named } if *named == path), "{error}");
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let error = MarkedBlock::gpg_conf(folder.path()).put().unwrap_err();
        assert!(matches!(error, EditError::NotAFile { .. }), "{error}");
    }
}
