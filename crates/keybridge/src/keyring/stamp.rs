//! Whether the files of a keyring have changed.

use std::fs::metadata;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::ssh_use::{KEY_FILES, SSHCONTROL};
use crate::gnupg::Dirs;
use crate::platform::FileStamp;

/// What a list of secret keys depends on, below GnuPG's home: public keys in each of their formats,
/// ownertrust (which has the disabled keys), secret keys, those for ssh, and the settings that choose among them.
const FILES: [&str; 11] = [
    "pubring.kbx",
    "pubring.gpg",
    "public-keys.d/pubring.db",
    "public-keys.d/pubring.db-wal",
    "trustdb.gpg",
    KEY_FILES,
    SSHCONTROL,
    "gpg.conf",
    "common.conf",
    "gpgsm.conf",
    "trustlist.txt",
];

/// Two changes within this time may leave the same timestamp.
const GRAIN: Duration = Duration::from_millis(50);

/// The state of the files at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    files: [Option<FileStamp>; FILES.len()],
    /// Counts too: without an agent no keys are listed, and a new agent creates a new socket.
    socket: Option<FileStamp>,
    /// The last change was so recent that another one might not show.
    is_fresh: bool,
}

impl Stamp {
    pub(super) fn of(dirs: &Dirs) -> Self {
        Self::at(SystemTime::now(), dirs)
    }

    fn at(now: SystemTime, dirs: &Dirs) -> Self {
        let file = |path: &Path| metadata(path).ok().map(|found| FileStamp::new(&found));
        let files = FILES.map(|name| file(&dirs.home.join(name)));
        let socket = file(&dirs.agent_socket);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let is_fresh = files.iter().chain([&socket]).flatten().any(|file| {
            let age = now.checked_sub(file.changed());
            age.is_some_and(|age| age < GRAIN)
        });
        Self { files, socket, is_fresh }
    }

    /// Whether nothing has changed since an earlier stamp was taken.
    pub(super) fn is_still(&self, earlier: &Self) -> bool {
        self.files == earlier.files && self.socket == earlier.socket && !earlier.is_fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_and_a_fresh_one_is_not_relied_on() {
        let home = tempfile::tempdir().unwrap();
        let keys = home.path().join("pubring.kbx");
        let dirs = Dirs {
            home: home.path().to_owned(),
            agent_socket: home.path().join("S.gpg-agent"),
            extra_socket: home.path().join("S.gpg-agent.extra"),
            ssh_socket: None,
        };
        let empty = Stamp::of(&dirs);
        assert!(Stamp::of(&dirs).is_still(&empty));
        std::fs::write(&keys, b"a").unwrap();
        let changed = std::fs::metadata(&keys).unwrap().modified().unwrap();
        let fresh = Stamp::at(changed + GRAIN / 2, &dirs);
        assert!(!fresh.is_still(&empty));
        // Another byte in the same instant would have the same size and time.
        assert!(!Stamp::of(&dirs).is_still(&fresh));
        let settled = Stamp::at(changed + GRAIN * 2, &dirs);
        assert!(Stamp::of(&dirs).is_still(&settled));
        std::fs::write(&keys, b"bc").unwrap();
        assert!(!Stamp::of(&dirs).is_still(&settled));
    }
}
