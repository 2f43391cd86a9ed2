//! Files: who may use them, and what tells one from another.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::system_calls;
use crate::platform::Privacy;

/// Where all pipes are.
const PIPES: &str = r"\\.\pipe\";

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// A named pipe.
    Socket,
    File,
    Other,
}

/// What is at a path; links are followed. A pipe isn't looked at, which would open it.
pub(crate) fn path_kind(path: &Path) -> io::Result<PathKind> {
    if pipe_name(path).is_some() {
        return Ok(PathKind::Socket);
    }
    let is_file = fs::metadata(path)?.is_file();
    Ok(if is_file { PathKind::File } else { PathKind::Other })
}

/// The name of a pipe, if a path leads to one. Both slashes are used in such paths.
pub(super) fn pipe_name(path: &Path) -> Option<String> {
    let path = path.to_str()?.replace('/', r"\");
    let (start, name) = path.split_at_checked(PIPES.len())?;
    let is_name = start.eq_ignore_ascii_case(PIPES) && !name.is_empty();
    is_name.then(|| name.to_owned())
}

/// The names of all pipes there are.
pub(crate) fn pipe_names() -> Vec<String> {
    let entries = fs::read_dir(PIPES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The path of a pipe.
pub(crate) fn pipe_path(name: &str) -> PathBuf {
    format!("{PIPES}{name}").into()
}

/// Whether there is a pipe at a path. It isn't opened for that.
pub(crate) fn local_socket_exists(path: &Path) -> bool {
    pipe_name(path).is_some_and(|name| system_calls::pipe_exists(&pipe_path(&name)))
}

/// Does nothing: a file is for those who may enter its folder.
pub(crate) const fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a folder that only this user can enter.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    system_calls::create_private_folder(path)
}

/// Creates a folder for this user, which is removed when it is dropped.
pub(crate) fn private_temporary_folder(prefix: &str, parent: &Path) -> io::Result<TempDir> {
    // The user's own folder for temporary files is private.
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent)
}

/// Whether only this user can enter what was found, which isn't followed if it is a link.
pub(crate) fn privacy_of(path: &Path, found: &Metadata) -> Privacy {
    if !is_own(found) {
        return Privacy::NotOurs;
    }
    let access = system_calls::access_of(path).and_then(|there| {
        let private = system_calls::private_access()?;
        Ok(lets_others_in(&there, &private))
    });
    match access {
        Ok(false) => Privacy::Private,
        Ok(true) => Privacy::TooOpen,
        Err(_) => Privacy::NotOurs,
    }
}

/// Whether an access list, as text, has somebody that the list for this user alone hasn't: but the system
/// and its administrators, who can enter everything anyway.
fn lets_others_in(access: &str, private: &str) -> bool {
    let own: Vec<&str> = allowed(private).collect();
    let is_known = |name: &str| own.contains(&name) || ["SY", "BA"].contains(&name);
    // Without a list everybody can enter.
    !access.contains('(') || !allowed(access).all(is_known)
}

/// Those whom the entries of an access list allow something: `(A;FLAGS;RIGHTS;;;NAME)`.
fn allowed(access: &str) -> impl Iterator<Item = &str> {
    let entries = access.split('(').skip(1).filter_map(|entry| entry.split_once(')'));
    let denies = |entry: &str| entry.starts_with("D;");
    let entries = entries.map(|(entry, _)| entry).filter(move |entry| !denies(entry));
    entries.map(|entry| entry.split(';').nth(5).unwrap_or_default())
}

/// Whether this is a folder, and no link to one.
pub(crate) fn is_own(found: &Metadata) -> bool {
    const REPARSE_POINT: u32 = 0x400;
    found.is_dir() && found.file_attributes() & REPARSE_POINT == 0
}

/// Nothing: only a helper on the host could compare it, and helpers run on Linux alone.
pub(crate) const fn file_id(_: &Path) -> Option<(u64, u64)> {
    None
}

/// What tells an open file from others of its folder, whatever its name is by now. The volume isn't asked:
/// Wine doesn't know that of a file that was renamed.
pub(crate) fn id_of_open_file(file: &File) -> Option<u64> {
    system_calls::file_number(file).ok()
}

/// What shows that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    size: u64,
    created: u64,
    written: u64,
}

impl FileStamp {
    pub(crate) fn new(found: &Metadata) -> Self {
        Self {
            size: found.file_size(),
            created: found.creation_time(),
            written: found.last_write_time(),
        }
    }

    /// When it was changed, since 1970.
    pub(crate) const fn changed(&self) -> Duration {
        // Windows counts from 1601, in steps of 100 ns.
        const UNTIL_1970: u64 = 116_444_736_000_000_000;
        let steps = self.written.saturating_sub(UNTIL_1970);
        Duration::from_nanos(steps.saturating_mul(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_that_has_somebody_else_lets_others_in() {
        let own = "D:P(A;OICI;FA;;;S-1-5-21-1-2-3-1001)";
        for private in [
            own,
            "D:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;S-1-5-21-1-2-3-1001)",
            "D:(D;;FA;;;WD)(A;;FA;;;S-1-5-21-1-2-3-1001)",
        ] {
            assert!(!lets_others_in(private, own), "{private}");
        }
        for open in [
            "",
            "D:NO_ACCESS_CONTROL",
            "D:(A;OICI;0x1200a9;;;BU)(A;OICI;FA;;;S-1-5-21-1-2-3-1001)",
            "D:(A;;FA;;;S-1-5-21-1-2-3-1002)",
            "D:(A;;FA;;;WD)",
            "D:(XA;;FX;;;S-1-1-0;(@User.Title==\"PM\"))",
        ] {
            assert!(lets_others_in(open, own), "{open}");
        }
    }

    #[test]
    fn a_folder_that_was_made_private_is_private() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("private");
        make_private_folder(&folder).unwrap();
        let privacy = privacy_of(&folder, &fs::symlink_metadata(&folder).unwrap());
        assert_eq!(privacy, Privacy::Private);
        // What is created there is for its user too.
        let inside = folder.join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("file"), "x").unwrap();
        let error = make_private_folder(&folder).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let file = inside.join("file");
        let privacy = privacy_of(&file, &fs::symlink_metadata(&file).unwrap());
        assert_eq!(privacy, Privacy::NotOurs, "a file");
    }

    #[test]
    fn a_path_to_a_pipe_is_known_in_both_spellings() {
        for path in [r"\\.\pipe\a b", "//./pipe/a b", r"\\.\PIPE\a b"] {
            assert_eq!(pipe_name(Path::new(path)).as_deref(), Some("a b"), "{path}");
        }
        for path in [r"\\.\pipe\", r"C:\pipe\a", r"\\server\pipe\a", "", "a"] {
            assert_eq!(pipe_name(Path::new(path)), None, "{path}");
        }
    }
}
