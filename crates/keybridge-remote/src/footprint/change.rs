//! One change of the target: how it is written down, and how it is undone. A new kind of change is a
//! variant here, with its lines in [`encode`] and [`decode`] and its arm in [`Change::undo`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use keybridge_proto::assuan::{escape_into, unescape};
use keybridge_proto::report::FailureKind;

use super::UndoContext;
use crate::error::Error;
use crate::handover;
use crate::home::safe_path::{self, FolderRole, remove_if_exists};
use crate::socket::current_listener::CurrentListener;
use crate::systemd::{ActiveState, UnitName};
use crate::user_files::marked_block::{EditError, MarkedBlock};

/// From this format on every change is on record. Files without it are an older helper's.
const FORMAT: &[u8] = b"2";

/// How the name of each file begins that is ours as a whole.
const OUR_FILES: &[u8] = b".keybridge-";

/// Something that a helper changed in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The lane's folder, where the lock file is, didn't exist. The one change that is made before it can
    /// be recorded.
    CreatedLaneFolder,
    /// A file of the user contains our lines.
    EditedFile(MarkedBlock),
    /// A file that is entirely ours.
    CreatedFile(PathBuf),
    /// Clients connect here.
    BoundSocket(PathBuf),
    /// Newer helpers of the same bridge connect here, in the lane's folder.
    BoundHandoverSocket,
    /// So many folders were made for masks of systemd's units, the lowest ones.
    CreatedUnitFolders(usize),
    /// A unit of systemd's that listened at the socket's path is masked for the user. It is known by its
    /// name, not by a path: nothing but a mask of the user's own can be removed by it.
    MaskedUnit(UnitName, ActiveState),
}

impl Change {
    /// Whether a helper can have made it for the lane of this folder. A lock file can come with the folder,
    /// from an archive or a repository, and must not name files of the user's to be removed.
    pub(super) fn may_be_ours(&self, folder: &Path) -> bool {
        match self {
            Self::CreatedFile(path) => {
                let name = path.file_name().unwrap_or_default();
                path.parent() == Some(folder) && name.as_bytes().starts_with(OUR_FILES)
            }
            // Only our own lines, dead sockets, masks and empty folders are removed, wherever they are.
            Self::CreatedLaneFolder
            | Self::EditedFile(_)
            | Self::BoundSocket(_)
            | Self::BoundHandoverSocket
            | Self::CreatedUnitFolders(_)
            | Self::MaskedUnit(..) => true,
        }
    }

    /// Undoes it. Does nothing if it was undone before or never made.
    pub(super) async fn undo(&self, context: &UndoContext<'_>) -> Result<(), Error> {
        let folder = context.discovered.folder();
        match self {
            Self::CreatedLaneFolder => {
                folder.remove_if_empty();
                Ok(())
            }
            Self::EditedFile(block) => {
                check_folder(block.path(), context)?;
                match block.remove() {
                    // The user has put something else there.
                    Err(EditError::NotAFile { .. }) => Ok(()),
                    result => Ok(result?),
                }
            }
            Self::CreatedFile(path) => {
                check_folder(path, context)?;
                remove_file(path)
            }
            Self::BoundSocket(path) => {
                match context.bound.iter().find(|bound| bound.path() == path) {
                    Some(bound) => bound.close().map_err(|error| Error::io("remove", path, error)),
                    None => remove_dead_socket(path, context).await,
                }
            }
            Self::BoundHandoverSocket => handover::remove_socket(folder.path()),
            Self::CreatedUnitFolders(count) => match context.discovered.user_units() {
                Some(units) => units.remove_folders(*count),
                None => Ok(()),
            },
            Self::MaskedUnit(name, before) => match context.discovered.user_units() {
                Some(units) => units.unmask(name, *before).await,
                None => Ok(()),
            },
        }
    }
}

/// What is in the lane's folder is ours only if that is still the same folder.
fn check_folder(path: &Path, context: &UndoContext<'_>) -> Result<(), Error> {
    let folder = context.discovered.folder();
    if path.starts_with(folder.path()) && folder.is_replaced() {
        let shown = folder.path().display();
        let message = format!("changes could not be undone: {shown} is another folder now");
        return Err(Error::new(FailureKind::NotPermitted, message));
    }
    Ok(())
}

/// Removes a file in a folder that no other user can write to. A link is removed, but not its target; a
/// folder stays.
fn remove_file(path: &Path) -> Result<(), Error> {
    let place = match safe_path::resolve_entry(path) {
        Ok(place) => place,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if std::fs::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    remove_if_exists(&place).map_err(|error| Error::io("remove", path, error))
}

/// Removes the socket of a helper that was killed, if no process listens there.
async fn remove_dead_socket(path: &Path, context: &UndoContext<'_>) -> Result<(), Error> {
    if safe_path::check(FolderRole::SocketFolder, path.parent().unwrap_or(path))?.is_none() {
        return Ok(());
    }
    match CurrentListener::find(path, context.discovered).await? {
        CurrentListener::Stale => {
            remove_if_exists(path).map_err(|error| Error::io("remove", path, error))
        }
        CurrentListener::Nobody
        | CurrentListener::AgentWithoutKeys(_)
        | CurrentListener::Alive(..)
        | CurrentListener::Foreign(_) => Ok(()),
    }
}

/// A line for each fact: its name, and its value as Assuan data. An older helper
/// ignores names that it doesn't know.
pub(super) fn encode(changes: &[Change]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut put = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.push(b' ');
        escape_into(&mut text, value);
        text.push(b'\n');
    };
    put("format", FORMAT);
    for change in changes {
        match change {
            Change::CreatedLaneFolder => put("folder", b"made"),
            Change::EditedFile(block) => {
                put("edit", block.path().as_os_str().as_bytes());
                put("lines", block.lines().as_bytes());
            }
            Change::CreatedFile(path) => put("file", path.as_os_str().as_bytes()),
            Change::BoundSocket(path) => put("socket", path.as_os_str().as_bytes()),
            Change::BoundHandoverSocket => put("handover", b"bound"),
            Change::CreatedUnitFolders(count) => put("unit-folders", count.to_string().as_bytes()),
            Change::MaskedUnit(name, before) => {
                put("unit", format!("{name} {before}").as_bytes());
            }
        }
    }
    text
}

/// Reads what was written, and whether it is all that was changed. What can't be read is left out.
pub(super) fn decode(text: &[u8]) -> (bool, Vec<Change>) {
    let (mut is_complete, mut changes) = (false, Vec::new());
    let mut edited: Option<PathBuf> = None;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        // A line without its end was cut.
        let Some((name, value)) = line.strip_suffix(b"\n").and_then(fact) else { continue };
        let path = || Some(PathBuf::from(OsStr::from_bytes(&value))).filter(|it| it.is_absolute());
        match name {
            b"format" => is_complete = value == FORMAT,
            b"folder" if value == b"made" => changes.push(Change::CreatedLaneFolder),
            b"edit" => edited = path(),
            b"lines" => {
                let block = edited.take().zip(String::from_utf8(value).ok());
                let block = block.map(|(path, lines)| MarkedBlock::new(path, lines));
                changes.extend(block.map(Change::EditedFile));
            }
            b"file" => changes.extend(path().map(Change::CreatedFile)),
            b"socket" => changes.extend(path().map(Change::BoundSocket)),
            b"handover" if value == b"bound" => changes.push(Change::BoundHandoverSocket),
            b"unit-folders" => changes.extend(parse(&value).map(Change::CreatedUnitFolders)),
            b"unit" => changes.extend(unit(&value)),
            _ => {}
        }
    }
    (is_complete, changes)
}

fn parse<T: FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn unit(value: &[u8]) -> Option<Change> {
    let (name, before) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some(Change::MaskedUnit(name.parse().ok()?, before.parse().ok()?))
}

fn fact(line: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (name, value) = line.split_at_checked(space)?;
    Some((name, unescape(value.get(1..)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back() {
        let odd = Path::new(OsStr::from_bytes(b"/odd\n path%\xff/S")).to_owned();
        let changes = vec![
            Change::CreatedLaneFolder,
            Change::EditedFile(MarkedBlock::new("/home/a b/.gitconfig", "[a]\n\tb = %c\r\n")),
            Change::EditedFile(MarkedBlock::new("/x", "")),
            Change::CreatedFile("/home/a b/.keybridge-git".into()),
            Change::BoundSocket(odd),
            Change::BoundHandoverSocket,
            Change::CreatedUnitFolders(2),
            Change::MaskedUnit("gpg-agent.socket".parse().unwrap(), ActiveState::Active),
            Change::MaskedUnit("a.socket".parse().unwrap(), ActiveState::Unknown),
        ];
        assert_eq!(decode(&encode(&changes)), (true, changes));
        assert_eq!(decode(&encode(&[])), (true, Vec::new()));
    }

    #[test]
    fn what_an_older_helper_wrote_can_be_read() {
        let text = b"folder made\nsocket /h/.gnupg/S.gpg-agent\nedit /h/.gnupg/gpg.conf\n\
                     lines agent-program /nonexistent%0A\n";
        let block = MarkedBlock::new("/h/.gnupg/gpg.conf", "agent-program /nonexistent\n");
        let changes = vec![
            Change::CreatedLaneFolder,
            Change::BoundSocket("/h/.gnupg/S.gpg-agent".into()),
            Change::EditedFile(block),
        ];
        assert_eq!(decode(text), (false, changes));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text = b"12 abcd\nfolder no\nsocket relative\nlines x\nedit y\nlines z\nnew 1\n\
                     file z\nhandover no\nunit ../a.socket active\nunit a.socket no\n\
                     unit /a/b.socket active\nunit-folders -1\nedit /c";
        assert_eq!(decode(text), (false, Vec::new()));
    }
}
