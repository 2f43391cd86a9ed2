//! Checks that nobody but the target's user and root can change a path: neither what it leads to, nor
//! anything on the way there. Opens, replaces and removes files at such paths.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use keybridge_proto::report::FailureKind;
use rustix::fs::OFlags;

use crate::error::{Error, quoted};

/// The kernel follows as many links in one path.
const MAX_LINKS: usize = 40;

/// What a folder is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderRole {
    GnupgHome,
    SshFolder,
    GitFolder,
    PipeFolder,
    SocketFolder,
}

impl FolderRole {
    /// What can be done about a link in its place.
    const fn instead_of_a_link(self) -> &'static str {
        match self {
            Self::GnupgHome => "set GNUPGHOME to the folder that it leads to",
            Self::SshFolder | Self::GitFolder | Self::PipeFolder | Self::SocketFolder => {
                "put the folder itself in its place"
            }
        }
    }
}

impl fmt::Display for FolderRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GnupgHome => "the GnuPG home",
            Self::SshFolder => "ssh's folder",
            Self::GitFolder => "the folder of git's entries",
            Self::PipeFolder => "the folder of the pipes",
            Self::SocketFolder => "the folder of the socket",
        })
    }
}

/// What is wrong with a folder or the way to it, or its metadata; `None` if it isn't there.
pub(crate) fn check(what: FolderRole, path: &Path) -> Result<Option<Metadata>, Error> {
    check_ancestors(what, path)?;
    let (shown, word) = (path.display(), quoted(path));
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&format!("look at {what}"), path, error)),
    };
    let error = |message| Error::new(FailureKind::NotPermitted, message);
    let error = match FolderProblem::of(&metadata) {
        None => return Ok(Some(metadata)),
        Some(FolderProblem::Link) => {
            let message = format!("{what} {shown} is a link; expected a folder");
            error(message).hint(what.instead_of_a_link())
        }
        Some(FolderProblem::NotAFolder) => {
            error(format!("{what} {shown} is not a folder")).hint(format!("move {word} away"))
        }
        Some(FolderProblem::WrongOwner(owner)) => {
            let euid = euid();
            error(format!("{what} {shown} belongs to uid {owner}, and this is uid {euid}"))
                .hint(format!("bridge as uid {owner}"))
        }
        Some(FolderProblem::TooOpen(mode)) => {
            error(format!("{what} {shown} can be written by others (mode {mode:04o})"))
                .hint(format!("chmod 700 {word}"))
        }
    };
    Err(error)
}

/// What is wrong with a folder itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderProblem {
    Link,
    NotAFolder,
    /// The uid of its owner.
    WrongOwner(u32),
    /// Its mode.
    TooOpen(u32),
}

impl FolderProblem {
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        if metadata.is_symlink() {
            Some(Self::Link)
        } else if !metadata.is_dir() {
            Some(Self::NotAFolder)
        } else if metadata.uid() != euid() {
            Some(Self::WrongOwner(metadata.uid()))
        } else {
            let mode = metadata.mode() & 0o7777;
            (mode & 0o022 != 0).then_some(Self::TooOpen(mode))
        }
    }
}

/// Every folder above must be the user's or root's, and nobody else may put something else in its
/// place. A link on the way is as good as the folders that it leads through. Returns the folder above, past the
/// links.
pub(crate) fn check_ancestors(what: FolderRole, path: &Path) -> Result<PathBuf, Error> {
    match walk(path.parent().unwrap_or(Path::new("/")), LastPart::Folder) {
        Ok(parent) => Ok(parent),
        Err(PathError::Io(place, error)) => Err(Error::io("look at", &place, error)),
        Err(PathError::Unsafe(UnsafePath { place, why, hint })) => {
            let message =
                format!("{what} {} is not safe: {} {why}", path.display(), place.display());
            Err(Error::new(FailureKind::NotPermitted, message).hint(hint))
        }
    }
}

/// A part of a path that others can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsafePath {
    /// Where on the way it is.
    pub(crate) place: PathBuf,
    /// What is wrong with it.
    pub(crate) why: String,
    /// What can be done about it.
    pub(crate) hint: String,
}

/// Why a path can't be used.
#[derive(Debug)]
pub(crate) enum PathError {
    Unsafe(UnsafePath),
    Io(PathBuf, io::Error),
}

impl PathError {
    /// Whether a part of the path doesn't exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(_, error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The file that a path leads to, whether it is there or not, in a folder that is the user's own and
/// that nobody else can write to. A link that somebody else made is not followed. The result contains
/// no link that somebody else could put there.
pub(crate) fn resolve_file(path: &Path) -> Result<PathBuf, PathError> {
    let file = resolve(path)?;
    check_own_folder(file.parent().unwrap_or(Path::new("/")))?;
    Ok(file)
}

/// Where an entry of such a folder is. What the entry itself is, a link for one, doesn't matter.
pub(crate) fn resolve_entry(path: &Path) -> Result<PathBuf, PathError> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(PathError::Io(path.to_owned(), io::ErrorKind::InvalidInput.into()));
    };
    let folder = walk(folder, LastPart::Folder)?;
    check_own_folder(&folder)?;
    Ok(folder.join(name))
}

/// A folder has to be the user's own, and nobody else may write to it.
fn check_own_folder(folder: &Path) -> Result<(), PathError> {
    let metadata = match std::fs::symlink_metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) => return Err(PathError::Io(folder.to_owned(), error)),
    };
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != euid() {
        return Err(belongs_to(folder, owner));
    }
    if mode & 0o022 != 0 {
        return Err(can_be_written(folder, mode));
    }
    Ok(())
}

/// What a path leads to, over links that the user or root made. What is there is not checked.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, PathError> {
    walk(path, LastPart::Anything)
}

fn belongs_to(place: &Path, owner: u32) -> PathError {
    PathError::Unsafe(UnsafePath {
        place: place.to_owned(),
        why: format!("belongs to uid {owner}"),
        hint: format!("bridge as uid {owner}, or use a home that is elsewhere"),
    })
}

fn can_be_written(place: &Path, mode: u32) -> PathError {
    PathError::Unsafe(UnsafePath {
        place: place.to_owned(),
        why: format!("can be written by others (mode {mode:04o})"),
        hint: format!("chmod go-w {}", quoted(place)),
    })
}

/// What the last part of a path has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastPart {
    /// A folder like those on the way.
    Folder,
    /// Not checked, unless it is a link.
    Anything,
}

/// Follows a path from the root, and returns where it leads.
fn walk(path: &Path, last: LastPart) -> Result<PathBuf, PathError> {
    let root = Path::new("/");
    let mut place = root.to_owned();
    let mut names = names(path);
    let mut links = 0;
    // In a user namespace the real root has another number.
    let system = std::fs::metadata(root).map_err(|error| PathError::Io(root.to_owned(), error))?;
    let trusted = [0, system.uid(), euid()];
    loop {
        let metadata = match std::fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                place.extend(names);
                return Ok(place);
            }
            Err(error) => return Err(PathError::Io(place, error)),
        };
        let (owner, mode) = (metadata.uid(), metadata.mode());
        if names.is_empty() && last == LastPart::Anything && !metadata.is_symlink() {
            return Ok(place);
        }
        if !trusted.contains(&owner) {
            return Err(belongs_to(&place, owner));
        }
        if metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                let (why, hint) =
                    ("is one link too many on the path".to_owned(), "remove the link".to_owned());
                return Err(PathError::Unsafe(UnsafePath { place, why, hint }));
            }
            let target = match std::fs::read_link(&place) {
                Ok(target) => target,
                Err(error) => return Err(PathError::Io(place, error)),
            };
            place.pop();
            if target.is_absolute() {
                root.clone_into(&mut place);
            }
            let mut longer = self::names(&target);
            longer.append(&mut names);
            names = longer;
        } else if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            // In a sticky folder others can't move what isn't theirs.
            return Err(can_be_written(&place, mode & 0o7777));
        }
        match names.pop_front() {
            Some(name) if name == ".." => drop(place.pop()),
            Some(name) => place.push(name),
            None => return Ok(place),
        }
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// Removes a file or a socket. It isn't an error if it is gone already.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Opens the file that is there, and no link. A pipe in its place doesn't hold us up.
pub(crate) fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    options.custom_flags(i32::try_from(flags).unwrap_or_default()).open(path)
}

/// Has a file take the place of the one that is there, so that a kill leaves either of them.
pub(crate) fn replace_by_rename(
    place: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let beside = beside(place);
    let replaced = remove_if_exists(&beside)
        .and_then(|()| write(&beside))
        .and_then(|()| std::fs::rename(&beside, place));
    if replaced.is_err() {
        let _ = remove_if_exists(&beside);
    }
    replaced
}

/// Where a file is written that is to replace another one: a name that only we use, so that what a kill leaves
/// there can be removed.
pub(crate) fn beside(place: &Path) -> PathBuf {
    let mut name = OsString::from(".keybridge-new-");
    name.push(place.file_name().unwrap_or_default());
    place.with_file_name(name)
}

/// Makes a folder for the target's user alone.
pub(crate) fn make_private(path: &Path) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| Error::io("create", path, error))
}

/// The user that this process runs as.
pub(crate) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}
