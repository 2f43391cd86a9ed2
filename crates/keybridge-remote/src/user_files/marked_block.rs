//! Lines of ours in a file of the user's: a marked block at its end. The new content is written beside the
//! file and renamed, so that a kill leaves either the old file or the new one. Links, the mode and the owner
//! stay. The file has to be in a folder that is the user's own and that no other user can write to, and
//! links of other users are not followed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::footprint::path_text;
use crate::home::safe_path::{
    PathError, UnsafePath, beside, open_no_link, remove_if_exists, replace_by_rename, resolve_file,
};
use crate::user_files::block_content::{block, without_block};

/// A configuration file has some lines; this is far more.
const MAX_SIZE: u64 = 1024 * 1024;

/// A block of lines in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarkedBlock {
    #[serde(with = "path_text")]
    path: PathBuf,
    lines: String,
}

/// Why a file of the user's can't be edited.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
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

impl MarkedBlock {
    /// A block of these lines, each with its LF.
    pub(crate) fn new(path: impl Into<PathBuf>, lines: impl Into<String>) -> Self {
        Self { path: path.into(), lines: lines.into() }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lines.
    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }

    /// Puts the block at the end of the file; one that was left over is replaced.
    pub(crate) fn put(&self) -> Result<(), EditError> {
        let place = self.place()?;
        let old = self.open(&place)?.map(|file| Old::read(self, file)).transpose()?;
        let content = old.as_ref().map_or(&[][..], |old| &old.content);
        let mut rest = without_block(content, &self.lines);
        let file_is_ours = old.is_none() || rest.is_no_file();
        let block = block(&rest.content, &self.lines, file_is_ours);
        rest.content.extend(block);
        self.replace(&place, old.as_ref(), &rest.content)
    }

    /// Removes the block, and the file too if it is ours and holds nothing else.
    pub(crate) fn remove(&self) -> Result<(), EditError> {
        let place = match self.place() {
            Ok(place) => place,
            Err(EditError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // A kill can have left it.
        remove_if_exists(&beside(&place)).map_err(self.io("clean up beside"))?;
        let Some(file) = self.open(&place)? else { return Ok(()) };
        let old = Old::read(self, file)?;
        let rest = without_block(&old.content, &self.lines);
        if rest.is_no_file() {
            return remove_if_exists(&place).map_err(self.io("remove"));
        }
        self.replace(&place, Some(&old), &rest.content)
    }

    /// Whether the block is certainly not in the file.
    pub(crate) fn is_absent(&self) -> bool {
        self.is_present() == Some(false)
    }

    /// Whether the block is in the file, if that can be known.
    pub(crate) fn is_present(&self) -> Option<bool> {
        let content = self.file_content().ok()?;
        Some(without_block(&content, &self.lines).content != content)
    }

    /// All that is in the file: nothing, if it doesn't exist.
    pub(crate) fn file_content(&self) -> Result<Vec<u8>, EditError> {
        match self.place().and_then(|place| self.open(&place)) {
            Ok(Some(file)) => Old::read(self, file).map(|old| old.content),
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
        match open_no_link(OpenOptions::new().read(true).write(true), place) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(EditError::NotAFile { path: self.path.clone() })
            }
            Err(error) => Err(self.io("open")(error)),
        }
    }

    /// Gives the file another content: all of it or, after an error, nothing.
    fn replace(&self, place: &Path, old: Option<&Old>, new: &[u8]) -> Result<(), EditError> {
        if old.is_some_and(|old| old.content == new) {
            return Ok(());
        }
        let replaced = replace_by_rename(place, |beside| write_beside(beside, old, new));
        let Err(error) = replaced else { return Ok(()) };
        // A bind mount or a hard link, a folder that is read-only, a disk without room for both.
        match old {
            Some(old) => {
                tracing::debug!(%error, "writing {} in place", self.path.display());
                old.write_in_place(new).map_err(self.io("write"))
            }
            None => Err(self.io("create")(error)),
        }
    }

    fn io(&self, verb: &'static str) -> impl FnOnce(io::Error) -> EditError {
        let path = self.path.clone();
        move |source| EditError::Io { verb, path, source }
    }
}

/// Writes a file that can take the place of the old one.
fn write_beside(beside: &Path, old: Option<&Old>, new: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    if let Some(old) = old {
        old.pass_on(&file)?;
    }
    file.write_all(new)?;
    file.sync_all()
}

/// A file as it is.
struct Old {
    file: File,
    metadata: Metadata,
    content: Vec<u8>,
}

impl Old {
    fn read(block: &MarkedBlock, file: File) -> Result<Self, EditError> {
        let metadata = file.metadata().map_err(block.io("look at"))?;
        if !metadata.is_file() {
            return Err(EditError::NotAFile { path: block.path.clone() });
        }
        let mut content = Vec::new();
        (&file).take(MAX_SIZE + 1).read_to_end(&mut content).map_err(block.io("read"))?;
        if content.len() as u64 > MAX_SIZE {
            return Err(EditError::TooLong { path: block.path.clone() });
        }
        Ok(Self { file, metadata, content })
    }

    /// Gives another file the owner and the mode of this one.
    fn pass_on(&self, other: &File) -> io::Result<()> {
        if self.metadata.nlink() > 1 {
            return Err(io::ErrorKind::TooManyLinks.into());
        }
        let new = other.metadata()?;
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        if (new.uid(), new.gid()) != (uid, gid) {
            fchown(other, Some(uid), Some(gid))?;
        }
        other.set_permissions(self.metadata.permissions())
    }

    /// After an error the file has its old content.
    fn write_in_place(&self, new: &[u8]) -> io::Result<()> {
        let old = &self.content;
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let put = |content: &[u8]| {
            let changed = content.get(same..).unwrap_or_default();
            self.file.write_all_at(changed, same as u64)?;
            self.file.set_len(content.len() as u64)
        };
        let written = put(new);
        if written.is_err()
            && let Err(error) = put(old)
        {
            tracing::warn!(%error, "a file may be damaged");
        }
        written.and_then(|()| self.file.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_files::block_content::ORIGINALS;

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

    /// Something that is mounted for a test.
    struct Mount(PathBuf);

    impl Mount {
        fn new(arguments: &[&str], place: &Path) -> Self {
            let mut mount = std::process::Command::new("mount");
            assert!(mount.args(arguments).arg(place).status().unwrap().success());
            Self(place.to_owned())
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }

    fn inode(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().ino()
    }

    #[test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to mount a file")]
    fn a_file_that_is_mounted_is_edited_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, outside) = (folder.path().join("gpg.conf"), folder.path().join("outside"));
        std::fs::write(&outside, "mine\n").unwrap();
        std::fs::write(&path, "").unwrap();
        let _mount = Mount::new(&["--bind", outside.to_str().unwrap()], &path);
        let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
        block.put().unwrap();
        assert!(std::fs::read(&outside).unwrap().ends_with(b"<<<\n"));
        let later = [std::fs::read(&path).unwrap(), b"later\n".to_vec()].concat();
        std::fs::write(&path, later).unwrap();
        block.remove().unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"mine\nlater\n");
        assert_eq!(inode(&path), inode(&outside));
        assert!(!beside(&path).exists());
    }

    #[test]
    fn a_file_with_two_names_keeps_both() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("gpg.conf"), folder.path().join("other"));
        std::fs::write(&path, "mine\n").unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
        block.put().unwrap();
        assert_eq!(inode(&path), inode(&other));
        assert!(!beside(&path).exists());
    }

    #[test]
    fn a_reader_never_sees_half_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpg.conf");
        std::fs::write(&path, "mine\n").unwrap();
        let mut reader = File::open(&path).unwrap();
        crate::user_files::gpg_conf::block(folder.path(), "2.2.40").put().unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "mine\n");
    }

    #[test]
    fn what_a_kill_leaves_beside_the_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpg.conf");
        let block = crate::user_files::gpg_conf::block(folder.path(), "2.2.40");
        std::fs::write(beside(&path), "half a fi").unwrap();
        block.put().unwrap();
        assert!(!beside(&path).exists());
        std::fs::write(beside(&path), "half a fi").unwrap();
        block.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to mount a small file system")]
    fn a_full_disk_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let options = ["-t", "tmpfs", "-o", "size=4k,mode=700", "keybridge-test"];
        let _disk = Mount::new(&options, folder);
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
