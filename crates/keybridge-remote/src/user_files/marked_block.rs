//! Lines of ours in a file of the user's: a marked block at its end. The file is edited in place, so that
//! links, bind mounts, its mode and its owner stay. It has to be in a folder that is the user's own and
//! that no other user can write to, and links of other users are not followed.
//!
//! A full disk is rolled back. Whatever a kill leaves half-way, [`MarkedBlock::remove`] and the next
//! [`MarkedBlock::put`] get the user's bytes out of it.

mod content;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::home::safe_path::{PathError, UnsafePath, resolve_file};
use content::{WithoutBlock, append, block, move_up, without_block};

/// A configuration file has some lines; this is far more.
const MAX_SIZE: u64 = 1024 * 1024;

/// A block of lines in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    #[error("{} is larger than {MAX_SIZE} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Somebody else could change its path.
    #[error("can't edit {}: {} {why}", path.display(), place.display())]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What on the way to it isn't safe.
        place: PathBuf,
        /// Why.
        why: String,
        /// What can be done about it.
        hint: String,
    },
    /// An error of the system.
    #[error("can't {verb} {}: {source}", path.display())]
    Io {
        /// What was tried, in the infinitive.
        verb: &'static str,
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
            Self::NotAFile { path }
            | Self::TooLong { path }
            | Self::Unsafe { path, .. }
            | Self::Io { path, .. } => path,
        }
    }
}

impl MarkedBlock {
    /// A block of these lines, each with its LF.
    pub fn new(path: impl Into<PathBuf>, lines: impl Into<String>) -> Self {
        Self { path: path.into(), lines: lines.into() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lines.
    pub fn lines(&self) -> &str {
        &self.lines
    }

    /// Puts the block at the end of the file; one that was left over is replaced.
    pub fn put(&self) -> Result<(), EditError> {
        let place = self.place()?;
        let (file, existed) = match self.open(&place)? {
            Some(file) => (file, true),
            None => (self.create(&place)?, false),
        };
        let content = self.content(&file)?;
        let rest = without_block(&content, &self.lines);
        let file_is_ours = !existed || rest.is_no_file();
        let block = block(&rest.content, &self.lines, file_is_ours);
        if content.strip_prefix(rest.content.as_slice()) == Some(block.as_slice()) {
            return Ok(());
        }
        self.reduce(&file, &content, &rest)?;
        let size = rest.content.len() as u64;
        let written = append(size, &block).iter().try_for_each(|step| step.take(&file));
        written.map_err(|source| {
            let undone =
                if file_is_ours { std::fs::remove_file(&place) } else { file.set_len(size) };
            if let Err(error) = undone {
                tracing::warn!(%error, "can't remove all of our lines from {}", self.path.display());
            }
            self.io("write")(source)
        })
    }

    /// Removes the block, and the file too if it is ours and holds nothing else.
    pub fn remove(&self) -> Result<(), EditError> {
        let place = match self.place() {
            Ok(place) => place,
            Err(EditError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(file) = self.open(&place)? else { return Ok(()) };
        let content = self.content(&file)?;
        let rest = without_block(&content, &self.lines);
        if rest.is_no_file() {
            return std::fs::remove_file(&place).map_err(self.io("remove"));
        }
        self.reduce(&file, &content, &rest)
    }

    /// Whether the block is certainly not in the file.
    pub fn is_absent(&self) -> bool {
        self.is_present() == Some(false)
    }

    /// Whether the block is in the file, if that can be known.
    pub fn is_present(&self) -> Option<bool> {
        let content = self.file_content().ok()?;
        Some(without_block(&content, &self.lines).content != content)
    }

    /// All that is in the file: nothing, if it doesn't exist.
    pub(crate) fn file_content(&self) -> Result<Vec<u8>, EditError> {
        match self.place().and_then(|place| self.open(&place)) {
            Ok(Some(file)) => self.content(&file),
            Ok(None) => Ok(Vec::new()),
            Err(EditError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Where the file itself is or will be, if its path is a link.
    fn place(&self) -> Result<PathBuf, EditError> {
        resolve_file(&self.path).map_err(|trouble| match trouble {
            PathError::Unsafe(UnsafePath { place, why, hint }) => {
                EditError::Unsafe { path: self.path.clone(), place, why, hint }
            }
            PathError::Io(_, source) => self.io("look at")(source),
        })
    }

    fn open(&self, place: &Path) -> Result<Option<File>, EditError> {
        // A pipe in the file's place must not hold us up.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(flags).unwrap_or_default())
            .open(place);
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(EditError::NotAFile { path: self.path.clone() })
            }
            Err(error) => Err(self.io("open")(error)),
        }
    }

    fn create(&self, place: &Path) -> Result<File, EditError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(place)
            .map_err(self.io("create"))
    }

    fn content(&self, file: &File) -> Result<Vec<u8>, EditError> {
        let metadata = file.metadata().map_err(self.io("look at"))?;
        if !metadata.is_file() {
            return Err(EditError::NotAFile { path: self.path.clone() });
        }
        let mut content = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut content).map_err(self.io("read"))?;
        if content.len() as u64 > MAX_SIZE {
            return Err(EditError::TooLong { path: self.path.clone() });
        }
        Ok(content)
    }

    /// Leaves only the user's lines in the file.
    fn reduce(&self, file: &File, old: &[u8], rest: &WithoutBlock) -> Result<(), EditError> {
        let new = rest.content.as_slice();
        if old == new {
            return Ok(());
        }
        if old.starts_with(new) {
            return file.set_len(new.len() as u64).map_err(self.io("shorten"));
        }
        let [copy @ .., moving, cut] = &move_up(old, new)[..] else { return Ok(()) };
        if let Err(error) = copy.iter().try_for_each(|step| step.take(file)) {
            // A full disk has no room for a copy of the lines, and the move needs none.
            tracing::debug!(%error, "moving lines without a copy");
            file.set_len(old.len() as u64).map_err(self.io("shorten"))?;
        }
        moving.take(file).and_then(|()| cut.take(file)).map_err(|source| {
            let undone = file.write_all_at(old, 0).and_then(|()| file.set_len(old.len() as u64));
            if let Err(error) = undone {
                tracing::warn!(%error, "{} may be damaged", self.path.display());
            }
            self.io("write")(source)
        })
    }

    fn io(&self, verb: &'static str) -> impl FnOnce(io::Error) -> EditError {
        let path = self.path.clone();
        move |source| EditError::Io { verb, path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::content::ORIGINALS;
    use super::*;

    #[test]
    fn files_come_back_byte_for_byte_also_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        for original in ORIGINALS {
            let path = folder.path().join("gpg.conf");
            std::fs::write(&path, original).unwrap();
            let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
            assert!(block.is_absent());
            block.put().unwrap();
            assert!(!block.is_absent());
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

    /// A file system of one page, full but for some bytes. It goes with the test.
    struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut mount = std::process::Command::new("mount");
            mount
                .args(["-t", "tmpfs", "-o", "size=4k,mode=700", "keybridge-test"])
                .arg(folder.path());
            assert!(mount.status().unwrap().success());
            Self(folder)
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        }
    }

    #[test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to mount a small file system")]
    fn a_full_disk_changes_nothing() {
        let disk = SmallDisk::new();
        let folder = disk.0.path();
        let path = folder.join("gpg.conf");
        let block = crate::user_files::gpg_conf::block(folder, "2.2.40");
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        // The page of a file that is gone may be counted as free a moment later.
        let write = |path: &Path, bytes: &[u8]| {
            keybridge_lab::eventually("there is room", || {
                !std::fs::write(path, bytes).is_err_and(|error| is_full(&error))
            });
            assert_eq!(std::fs::read(path).unwrap(), bytes);
        };
        let full = |error: EditError| match error {
            EditError::Io { source, .. } => is_full(&source),
            EditError::NotAFile { .. } | EditError::TooLong { .. } | EditError::Unsafe { .. } => {
                false
            }
        };
        for room in 0..150 {
            for end in [b'x', b'\n'] {
                let mut original = vec![b'x'; 4096 - room];
                *original.last_mut().unwrap() = end;
                write(&path, &original);
                match block.put() {
                    Ok(()) => block.remove().unwrap(),
                    Err(error) => assert!(full(error)),
                }
                assert_eq!(std::fs::read(&path).unwrap(), original, "{room}");
                std::fs::remove_file(&path).unwrap();
            }
        }
        write(&folder.join("other"), &[b'x'; 4096]);
        assert!(full(block.put().unwrap_err()));
        assert!(!path.exists());
        std::fs::remove_file(folder.join("other")).unwrap();
        // Lines that came after the block move up without room for a copy.
        block.put().unwrap();
        let later = vec![b'y'; 4096 - std::fs::read(&path).unwrap().len()];
        let with = [std::fs::read(&path).unwrap(), later.clone()].concat();
        write(&path, &with);
        block.remove().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), later);
    }

    #[test]
    fn a_file_that_was_not_there_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpg.conf");
        let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
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
        let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
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
        let error = crate::user_files::gpg_conf::block(folder.path(), "2.2.40").put().unwrap_err();
        assert!(matches!(&error, EditError::NotAFile { path: named } if *named == path), "{error}");
        std::fs::remove_dir(&path).unwrap();
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let error = crate::user_files::gpg_conf::block(folder.path(), "2.2.40").put().unwrap_err();
        assert!(matches!(error, EditError::NotAFile { .. }), "{error}");
    }
}
