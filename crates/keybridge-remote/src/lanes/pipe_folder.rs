//! The folder with the pipes of the git lane: the way for entries in a sandbox that forbids sockets.
//!
//! A slot is two named pipes: an entry writes its request into one, and reads the answer from the other. The
//! entry that holds the lock of the first one uses the slot.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};

use crate::error::Error;
use crate::home::safe_path::{self, FolderRole};

/// How many entries are served at once. There are few sandboxes, and a person can't look at more dialogs.
pub(crate) const SLOTS: usize = 8;

/// The name of the folder.
const FOLDER: &str = ".keybridge-pipes";

/// The pipe into which an entry writes its request.
pub(crate) fn request_name(slot: usize) -> String {
    format!("{slot}.request")
}

/// The pipe from which it reads the answer.
pub(crate) fn answer_name(slot: usize) -> String {
    format!("{slot}.answer")
}

/// A pipe that is made before it takes the place of another one.
fn new_name(name: &str) -> String {
    format!("{name}.new")
}

/// The folder, open.
#[derive(Debug)]
pub(crate) struct PipeFolder(OwnedFd);

/// Where the pipes are, in the folder that they were asked for.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FOLDER)
}

/// The same, past the links on the way there. From now on none is followed.
pub(crate) fn resolve(folder: &Path) -> Result<PathBuf, Error> {
    let path = path_in(folder);
    safe_path::check_ancestors(FolderRole::PipeFolder, &path).map(|parent| path_in(&parent))
}

/// Whether a path has the name of such a folder.
pub(crate) fn is_named(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == FOLDER)
}

impl PipeFolder {
    /// Makes the folder, if it isn't there, and opens it. Nobody else may write to it.
    pub(crate) fn make(path: &Path) -> Result<Self, Error> {
        if safe_path::check(FolderRole::PipeFolder, path)?.is_none() {
            make_private(path).map_err(|error| Error::io("create", path, error))?;
            safe_path::check(FolderRole::PipeFolder, path)?;
        }
        Self::open(path).map_err(|error| Error::io("open", path, error))
    }

    /// Opens the folder, if it is there and still ours.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if_only(safe_path::euid(), open_without_links(path)?).map(Self)
    }

    /// Makes a pipe, in the place of another one, and opens it.
    pub(crate) fn make_pipe(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        let new = new_name(name);
        match fs::unlinkat(&self.0, &new, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        fs::mknodat(&self.0, &new, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let pipe = self.open_pipe(&new, access)?;
        fs::renameat(&self.0, &new, &self.0, name)?;
        Ok(pipe)
    }

    /// Opens a pipe.
    pub(crate) fn open_pipe(&self, name: &str, access: OFlags) -> io::Result<OwnedFd> {
        open_pipe(&self.0, name, access)
    }

    /// Whether a name leads to a pipe.
    pub(crate) fn leads_to(&self, name: &str, pipe: impl AsFd) -> bool {
        leads_to(&self.0, name, pipe)
    }
}

/// Opens a pipe in a folder without waiting for the other end. Nothing but a pipe is opened.
pub(crate) fn open_pipe(folder: &OwnedFd, name: &str, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = fs::openat(folder, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(fs::fstat(&pipe)?.st_mode) {
        FileType::Fifo => Ok(pipe),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Whether a name in a folder leads to an open pipe.
pub(crate) fn leads_to(folder: &OwnedFd, name: &str, pipe: impl AsFd) -> bool {
    let id = |stat: &fs::Stat| (stat.st_dev, stat.st_ino);
    let named = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| fs::fstat(pipe).is_ok_and(|pipe| id(&named) == id(&pipe)))
}

/// Opens the folder of a user to which nobody else can write: another one could answer there.
pub(crate) fn open_of(path: &Path, owner: u32) -> io::Result<OwnedFd> {
    if_only(owner, open_in(fs::CWD, path)?)
}

fn if_only(owner: u32, folder: OwnedFd) -> io::Result<OwnedFd> {
    let found = fs::fstat(&folder)?;
    if found.st_uid == owner && found.st_mode & 0o022 == 0 {
        Ok(folder)
    } else {
        Err(io::Error::other("another user can write to it"))
    }
}

/// Opens a folder, and no link to one. It need not be readable: a sandbox may forbid that.
fn open_in(folder: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, path, flags, Mode::empty()).map_err(io::Error::from)
}

/// Opens a folder by a path that has no links. A sandbox that may write on the way could put one there, and so
/// have us work where it may not.
fn open_without_links(path: &Path) -> io::Result<OwnedFd> {
    let mut folder = open_in(fs::CWD, Path::new("/"))?;
    for part in path.components() {
        folder = open_in(&folder, part.as_ref())?;
    }
    Ok(folder)
}

/// The folder that a folder of pipes is in, open, and the name there.
fn open_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    let (parent, name) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    Ok((open_without_links(parent)?, name))
}

fn make_private(path: &Path) -> io::Result<()> {
    let (parent, name) = open_parent(path)?;
    fs::mkdirat(parent, name, Mode::RWXU).map_err(io::Error::from)
}

/// Removes the pipes of the folder, and the folder if nothing else is in it.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let failed = |error| Error::io("remove", path, error);
    let opened = open_parent(path)
        .and_then(|(parent, name)| Ok((open_in(&parent, name.as_ref())?, parent, name)));
    let (folder, parent, name) = match opened {
        Ok(opened) => opened,
        Err(error) if is_not_ours(&error) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if fs::fstat(&folder).map_err(|error| failed(error.into()))?.st_uid != safe_path::euid() {
        // Somebody else has made it, where ours was or could not be made.
        return Ok(());
    }
    for slot in 0..SLOTS {
        for name in [request_name(slot), answer_name(slot)] {
            for name in [new_name(&name), name] {
                let is_pipe = fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
                if is_pipe {
                    fs::unlinkat(&folder, &name, AtFlags::empty())
                        .map_err(|error| failed(error.into()))?;
                }
            }
        }
    }
    if let Err(error) = fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        tracing::debug!(%error, "the folder of the pipes stays");
    }
    Ok(())
}

/// Whether the folder is gone, or something else has its place or that of a folder on the way: what others can
/// do there must not keep the rest from being undone.
fn is_not_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP)
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;

    use super::*;

    #[test]
    fn pipes_are_made_replaced_and_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let path = path_in(home.path());
        let folder = PipeFolder::make(&path).unwrap();
        let (first, other) = (path.join(request_name(0)), path.join(answer_name(0)));
        folder.make_pipe(&request_name(0), OFlags::RDONLY).unwrap();
        // Whatever has its place is replaced, and a link isn't followed.
        std::fs::write(home.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink(home.path().join("file"), &other).unwrap();
        assert!(folder.open_pipe(&answer_name(0), OFlags::RDWR).is_err());
        folder.make_pipe(&answer_name(0), OFlags::RDWR).unwrap();
        for pipe in [&first, &other] {
            assert!(std::fs::symlink_metadata(pipe).unwrap().file_type().is_fifo());
        }
        let own = path.join(request_name(1));
        std::fs::write(&own, "the user's").unwrap();
        assert!(folder.open_pipe(&request_name(1), OFlags::RDONLY).is_err());
        remove(&path).unwrap();
        assert!(!first.exists() && !other.exists() && own.exists());
        std::fs::remove_file(own).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        // What has the place of the folder stays.
        std::os::unix::fs::symlink(home.path(), &path).unwrap();
        remove(&path).unwrap();
        assert!(path.is_symlink() && PipeFolder::make(&path).is_err());
    }

    #[test]
    fn a_link_on_the_way_leads_nowhere() {
        let home = tempfile::tempdir().unwrap();
        let [place, elsewhere] = ["place", "elsewhere"].map(|name| home.path().join(name));
        std::fs::create_dir(&elsewhere).unwrap();
        let others = PipeFolder::make(&path_in(&elsewhere)).unwrap();
        others.make_pipe(&request_name(0), OFlags::RDONLY).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
        remove(&path_in(&place)).unwrap();
        assert!(path_in(&elsewhere).join(request_name(0)).exists());
        assert!(PipeFolder::open(&path_in(&place)).is_err());
        remove(&path_in(&elsewhere)).unwrap();
        assert!(PipeFolder::make(&path_in(&place)).is_err());
        assert!(!path_in(&elsewhere).exists());
    }

    #[test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to give a folder away")]
    fn the_folder_of_another_user_stays_and_is_nothing_to_undo() {
        let home = tempfile::tempdir().unwrap();
        let path = path_in(home.path());
        PipeFolder::make(&path).unwrap().make_pipe(&request_name(0), OFlags::RDONLY).unwrap();
        keybridge_lab::set_owner(&path, 1);
        remove(&path).unwrap();
        assert!(path.join(request_name(0)).exists() && PipeFolder::make(&path).is_err());
    }
}
