//! What differs between systems: one module for each, with the same items, and a table of what else is
//! known about each of them.

use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
// Where it isn't used it is tested.
#[cfg(any(test, not(target_os = "linux")))]
mod polled_network;
mod programs;
mod system;

#[cfg(target_os = "linux")]
pub(crate) use linux::{LockHolder, NetworkChanges, read_own_file};
#[cfg(not(target_os = "linux"))]
pub(crate) use polled_network::NetworkChanges;
pub(crate) use programs::{clean_command, find_program, program};
pub(crate) use system::{ServiceState, Shell, System, expand, variable};
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(unix)]
pub use unix::{close_inherited, forbid_core_dumps, prepare_terminal};
#[cfg(windows)]
pub(crate) use windows::*;
#[cfg(windows)]
pub use windows::{close_inherited, forbid_core_dumps, prepare_terminal};

/// Tests of what only Unix has.
#[cfg(all(test, unix))]
macro_rules! tests_on_unix {
    ($($item:item)*) => { $($item)* };
}
#[cfg(not(all(test, unix)))]
macro_rules! tests_on_unix {
    ($($item:item)*) => {};
}
pub(crate) use tests_on_unix;

/// Whether only this user can enter something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privacy {
    /// A folder that only this user can enter.
    Private,
    /// A folder of this user's that others can enter.
    TooOpen,
    /// No folder, or another user's.
    NotOurs,
}

/// Where folders are made that only this user can enter: in the user's runtime folder, or else with other
/// temporary files. That of another user, who could put another folder in the place of ours, isn't used.
pub(crate) fn parent_of_private_folders() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime.filter(|folder| is_own_folder(folder)).unwrap_or_else(std::env::temp_dir)
}

fn is_own_folder(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| is_own(&found))
}

/// Ctrl-C, as a terminal sends it.
pub(crate) const INTERRUPT: u8 = 3;

/// None: where the bytes are in the file isn't known, so those in memory are used.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn read_own_file(_: &'static [u8]) -> Option<Vec<u8>> {
    None
}

/// The process that has the lock of a file: only Linux says which.
#[cfg(not(target_os = "linux"))]
pub(crate) enum LockHolder {}

#[cfg(not(target_os = "linux"))]
impl LockHolder {
    #[expect(clippy::unnecessary_wraps, reason = "the form that it has on Linux")]
    pub(crate) const fn find(_lock: &std::path::Path) -> std::io::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) const fn terminate(&self) {
        match *self {}
    }

    pub(crate) const fn kill(&self) {
        match *self {}
    }
}

tests_on_unix! {
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_user_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_own_folder(folder.path()));
        assert!(!is_own_folder(&folder.path().join("missing")));
        // One of the two belongs to somebody else, whoever runs this.
        let somebody = match ids() {
            (0, _) => 12345,
            (own, _) => own,
        };
        let _ = std::os::unix::fs::chown(folder.path(), Some(somebody), None);
        assert!(!(is_own_folder(folder.path()) && is_own_folder(Path::new("/"))));
    }
}
}
