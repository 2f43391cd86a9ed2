//! A mask of a unit: a link to `/dev/null` in the user's own folder of units.

use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::UnitName;
use crate::error::Error;
use crate::home::safe_path::{self, PathError, euid, remove_if_exists, resolve_entry};

/// What a link of a masked unit leads to.
const NOTHING: &str = "/dev/null";

/// The folders above the user's units, below the home. Each is made if it isn't there.
const FOLDERS: [&str; 3] = [".config", ".config/systemd", ".config/systemd/user"];

/// What the user's folder has for a unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnitEntry {
    Nothing,
    /// A link to `/dev/null` of this user's.
    Masked,
    /// Something else, which is the user's.
    UsersOwn(PathBuf),
}

/// Where the user's units are. The manager has the environment of a login before any profile, so a
/// variable that names another folder doesn't count.
pub(super) fn folder_in(home: &Path) -> PathBuf {
    home.join(".config/systemd/user")
}

/// Looks at what is there.
pub(super) fn look(home: &Path, name: &UnitName) -> UnitEntry {
    let path = name.in_folder(&folder_in(home));
    let metadata = match std::fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return UnitEntry::Nothing,
        Err(_) => return UnitEntry::UsersOwn(path),
    };
    let is_mask = metadata.is_symlink()
        && metadata.uid() == euid()
        && std::fs::read_link(&path).is_ok_and(|target| target == Path::new(NOTHING));
    if is_mask { UnitEntry::Masked } else { UnitEntry::UsersOwn(path) }
}

/// How many of the folders have to be made. The lowest one that is there has to be the user's own.
pub(super) fn missing_folders(home: &Path) -> Result<usize, Error> {
    let is_there = |name: &&str| std::fs::symlink_metadata(home.join(name)).is_ok();
    let there = FOLDERS.iter().take_while(|name| is_there(name)).count();
    let lowest = there.checked_sub(1).and_then(|at| FOLDERS.get(at));
    resolve_entry(&lowest.map_or(home.to_owned(), |name| home.join(name)).join("x"))?;
    Ok(FOLDERS.len() - there)
}

/// Makes the folders that are missing.
pub(super) fn make_folders(home: &Path) -> Result<(), Error> {
    for folder in FOLDERS.map(|name| home.join(name)) {
        if std::fs::symlink_metadata(&folder).is_err() {
            safe_path::make_private(&resolve_entry(&folder)?)?;
        }
    }
    Ok(())
}

/// Removes the lowest folders, as long as they are empty.
pub(super) fn remove_folders(home: &Path, count: usize) -> Result<(), Error> {
    for folder in FOLDERS.iter().rev().take(count).map(|name| home.join(name)) {
        let place = match resolve_entry(&folder) {
            Ok(place) => place,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        match std::fs::remove_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(()) => {}
            // The user has something there.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Makes the link, where nothing is.
pub(super) fn put(home: &Path, name: &UnitName) -> Result<(), Error> {
    let place = place(home, name)?;
    symlink(NOTHING, &place).map_err(|error| Error::io("create", &place, error))
}

/// Removes the link.
pub(super) fn remove(home: &Path, name: &UnitName) -> Result<(), Error> {
    let place = place(home, name)?;
    remove_if_exists(&place).map_err(|error| Error::io("remove", &place, error))
}

fn place(home: &Path, name: &UnitName) -> Result<PathBuf, PathError> {
    resolve_entry(&name.in_folder(&folder_in(home)))
}
