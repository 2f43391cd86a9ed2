//! One change of the target: how it is written down, and how it is undone. A new kind of change is a
//! variant here, with its arm in [`Change::undo`].

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use keybridge_proto::report::FailureKind;
use serde::{Deserialize, Serialize};

use super::UndoContext;
use crate::DiscoveredLane;
use crate::error::Error;
use crate::home::safe_path::{self, FolderRole, beside, remove_if_exists};
use crate::lanes::pipe_folder;
use crate::socket::current_listener::CurrentListener;
use crate::systemd::{ActiveState, UnitName};
use crate::user_files::marked_block::{EditError, MarkedBlock};

/// How the name of each file begins that is ours as a whole.
const OUR_FILES: &[u8] = b".keybridge-";

/// Something that a helper changed in the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// The lane's folder, where the lock file is, didn't exist. The one change that is made before it can
    /// be recorded.
    CreatedLaneFolder,
    /// A file of the user contains our lines.
    EditedFile(MarkedBlock),
    /// A file that is entirely ours.
    CreatedFile(#[serde(with = "path_text")] PathBuf),
    /// A folder of ours with pipes for git.
    MadePipes(#[serde(with = "path_text")] PathBuf),
    /// Clients connect here.
    BoundSocket(#[serde(with = "path_text")] PathBuf),
    /// So many folders were made for masks of systemd's units, the lowest ones.
    CreatedUnitFolders(usize),
    /// A unit of systemd's that listened at the socket's path is masked for the user. It is known by its
    /// name, not by a path: nothing but a mask of the user's own can be removed by it.
    MaskedUnit(UnitName, ActiveState),
}

impl Change {
    /// Whether a helper can have made it for the lane of this folder. A lock file can come with the folder,
    /// from an archive or a repository, and must not name files of the user's to be removed.
    pub(super) fn may_be_ours(&self, discovered: &DiscoveredLane) -> bool {
        match self {
            Self::CreatedFile(path) => {
                let name = path.file_name().unwrap_or_default();
                path.parent() == Some(discovered.path()) && name.as_bytes().starts_with(OUR_FILES)
            }
            Self::MadePipes(path) => pipe_folder::is_named(path),
            // The user can have masked any unit.
            Self::MaskedUnit(name, _) => discovered.may_have_masked(name),
            // Only our own lines, dead sockets and empty folders are removed, wherever they are.
            Self::CreatedLaneFolder
            | Self::EditedFile(_)
            | Self::BoundSocket(_)
            | Self::CreatedUnitFolders(_) => true,
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
                // What a kill left of a newer one.
                remove_file(&beside(path))?;
                remove_file(path)
            }
            Self::MadePipes(path) => pipe_folder::remove(path),
            Self::BoundSocket(path) => {
                match context.bound.iter().find(|bound| bound.path() == path) {
                    Some(bound) => bound.close().map_err(|error| Error::io("remove", path, error)),
                    None => remove_dead_socket(path, context).await,
                }
            }
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

/// A line of JSON for each change.
pub(super) fn encode(changes: &[Change]) -> Vec<u8> {
    let line = |change| serde_json::to_string(change).map(|line| line + "\n").unwrap_or_default();
    changes.iter().map(line).collect::<String>().into_bytes()
}

/// Reads what was written. A line that can't be read is left out: a kill can have cut it.
pub(super) fn decode(text: &[u8]) -> Vec<Change> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Absolute paths as text. Bytes that aren't UTF-8 are escaped as in Assuan data.
pub(crate) mod path_text {
    use std::ffi::OsString;
    use std::fmt::Write;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use keybridge_proto::assuan::unescape;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for chunk in path.as_os_str().as_bytes().utf8_chunks() {
            text += &chunk.valid().replace('%', "%25");
            for byte in chunk.invalid() {
                // Writing to a string can't fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
        serializer.serialize_str(&text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unescape(text.as_bytes()).map_err(D::Error::custom)?;
        let path = PathBuf::from(OsString::from_vec(bytes));
        if path.is_absolute() { Ok(path) } else { Err(D::Error::custom("the path is relative")) }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn changes_come_back() {
        let odd = Path::new(OsStr::from_bytes(b"/odd\n path%\xff/S")).to_owned();
        let changes = vec![
            Change::CreatedLaneFolder,
            Change::EditedFile(MarkedBlock::new("/home/a b/.gitconfig", "[a]\n\tb = %c\r\n")),
            Change::EditedFile(MarkedBlock::new("/x", "")),
            Change::CreatedFile("/home/a b/.keybridge-git".into()),
            Change::MadePipes("/home/a b/.keybridge-pipes".into()),
            Change::BoundSocket(odd),
            Change::CreatedUnitFolders(2),
            Change::MaskedUnit("gpg-agent.socket".parse().unwrap(), ActiveState::Active),
            Change::MaskedUnit("a.socket".parse().unwrap(), ActiveState::Unknown),
        ];
        assert_eq!(decode(&encode(&changes)), changes);
        assert_eq!(decode(&encode(&[])), []);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text = br#"12 abcd
"future"
{"bound-socket":"relative"}
{"created-file":"/%zz"}
{"edited-file":{"path":"y","lines":""}}
{"masked-unit":["../a.socket","active"]}
{"masked-unit":["a.socket","no"]}
{"created-unit-folders":-1}
{"bound-socket":"/a
"created-lane-folder"
{"created-file":"/c"#;
        assert_eq!(decode(text), [Change::CreatedLaneFolder]);
    }
}
