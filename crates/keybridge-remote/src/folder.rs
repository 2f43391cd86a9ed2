//! Folders that only the target's user may change, nor anything on the way to them. Looked at without
//! changing them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path};

use crate::error::{Problem, StartError};
use crate::quoted::quoted;

/// The kernel follows as many on one way.
const MAX_LINKS: usize = 40;

/// What a folder is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    GnupgHome,
    SshFolder,
    SocketFolder,
}

impl Role {
    /// What can be done about a link in its place.
    const fn instead_of_a_link(self) -> &'static str {
        match self {
            Self::GnupgHome => "set GNUPGHOME to the folder that it leads to",
            Self::SshFolder | Self::SocketFolder => "put the folder itself in its place",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GnupgHome => "the GnuPG home",
            Self::SshFolder => "ssh's folder",
            Self::SocketFolder => "the folder of the socket",
        })
    }
}

/// What is wrong with a folder or the way to it, or its metadata; `None` if it isn't there.
pub(crate) fn check(what: Role, path: &Path) -> Result<Option<Metadata>, StartError> {
    check_way(what, path)?;
    let (shown, word) = (path.display(), quoted(path));
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StartError::io(&format!("looking at {what}"), path, &error)),
    };
    let problem = if metadata.is_symlink() {
        Problem::new(format!("{what} {shown} is a link; a folder is expected"))
            .hint(what.instead_of_a_link())
    } else if !metadata.is_dir() {
        Problem::new(format!("{what} {shown} is not a folder")).hint(format!("remove {word}"))
    } else if metadata.uid() != euid() {
        let (owner, euid) = (metadata.uid(), euid());
        Problem::new(format!("{what} {shown} belongs to uid {owner}, and this is uid {euid}"))
            .hint(format!("bridge as uid {owner}, or: chown {euid} {word}"))
    } else if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o7777;
        Problem::new(format!("{what} {shown} can be written by others (mode {mode:04o})"))
            .hint(format!("chmod 700 {word}"))
    } else {
        return Ok(Some(metadata));
    };
    Err(StartError::NotPermitted(problem))
}

/// Every folder above must be the user's or root's, and nobody else may put something else in its
/// place. A link on the way is as good as the folders that it leads through.
pub(crate) fn check_way(what: Role, path: &Path) -> Result<(), StartError> {
    let bad = |place: &Path, why: String, hint: String| {
        let message = format!("{what} {} is not safe: {} {why}", path.display(), place.display());
        Err(StartError::NotPermitted(Problem::new(message).hint(hint)))
    };
    let root = Path::new("/");
    let mut place = root.to_owned();
    let mut names = names(path.parent().unwrap_or(root));
    let mut links = 0;
    // In a user namespace the real root has another number.
    let system =
        std::fs::metadata(root).map_err(|error| StartError::io("looking at", root, &error))?.uid();
    loop {
        let metadata = match std::fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StartError::io("looking at", &place, &error)),
        };
        let (owner, mode) = (metadata.uid(), metadata.mode());
        if ![0, system, euid()].contains(&owner) {
            let hint = format!("bridge as uid {owner}, or use a home that is elsewhere");
            return bad(&place, format!("belongs to uid {owner}"), hint);
        }
        if metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return bad(
                    &place,
                    "is one link too many".to_owned(),
                    "remove the link".to_owned(),
                );
            }
            let target = std::fs::read_link(&place)
                .map_err(|error| StartError::io("reading the link", &place, &error))?;
            place.pop();
            if target.is_absolute() {
                root.clone_into(&mut place);
            }
            let mut longer = self::names(&target);
            longer.append(&mut names);
            names = longer;
        } else if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            // In a sticky folder others can't move what isn't theirs.
            let why = format!("can be written by others (mode {:04o})", mode & 0o7777);
            return bad(&place, why, format!("chmod go-w {}", quoted(&place)));
        }
        match names.pop_front() {
            Some(name) if name == ".." => drop(place.pop()),
            Some(name) => place.push(name),
            None => return Ok(()),
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

/// Makes a folder for the target's user alone.
pub(crate) fn make_private(path: &Path) -> Result<(), StartError> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|error| StartError::io("creating", path, &error))
}

/// Who we are, to the kernel.
pub(crate) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}
