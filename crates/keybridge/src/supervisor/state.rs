//! The state of bridges on disk: a folder for each target, in the user's runtime folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::platform::{
    Privacy, System, expand, make_private_folder, privacy_of, private_file, user_tag, variable,
};
use crate::{Error, Result, log};

/// The folder of all bridges of this user.
#[derive(Debug, Clone)]
pub struct StateRoot(PathBuf);

/// The folder of one bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

/// The lock that a bridge's process holds as long as it runs. A pid alone proves nothing.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not read")] File);

impl StateRoot {
    /// Opens the user's folder. It is created if it is missing, and refused if it belongs to another user.
    pub fn open() -> Result<Self> {
        let path = Self::path();
        make_private(&path)?;
        Ok(Self(path))
    }

    /// Where the user's folder is, or would be.
    pub(crate) fn path() -> PathBuf {
        let named = variable("KEYBRIDGE_STATE").map(PathBuf::from);
        let usual = || {
            let folders = expand(System::here().state_folders, variable);
            folders
                .into_iter()
                .find(|folder| folder.is_dir())
                .map(|folder| folder.join("keybridge"))
        };
        named
            .or_else(usual)
            .unwrap_or_else(|| std::env::temp_dir().join(format!("keybridge-state-{}", user_tag())))
    }

    /// The folder of a target's bridge, by [`Target::key`](crate::target::Target::key).
    pub fn folder(&self, key: &str) -> StateFolder {
        // Short, since the path of the control socket is limited.
        let hash = format!("{:x}", Sha256::digest(key));
        StateFolder(self.0.join(hash.get(..16).unwrap_or(&hash)))
    }

    /// The token that identifies a bridge to its helpers, different for each target, user and host. It
    /// isn't a secret.
    pub fn token(&self, key: &str) -> Result<String> {
        let path = self.0.join("host");
        let host = match fs::read(&path) {
            Ok(host) => host,
            Err(_) => self.new_host(&path).map_err(|error| failed(&path, error))?,
        };
        let hash = format!("{:x}", Sha256::new().chain_update(host).chain_update(key).finalize());
        Ok(hash.get(..32).unwrap_or(&hash).to_owned())
    }

    /// Creates the random id of this user on this host. If several processes do, the first one wins.
    fn new_host(&self, path: &Path) -> io::Result<Vec<u8>> {
        let host: [u8; 16] = keybridge_link::random()?;
        let new = tempfile::NamedTempFile::new_in(&self.0)?;
        fs::write(new.path(), host)?;
        match new.persist_noclobber(path) {
            Ok(_) => Ok(host.to_vec()),
            Err(_) => fs::read(path),
        }
    }

    /// Removes the folders of bridges that ended long ago.
    pub fn prune(&self) {
        for folder in self.folders() {
            let is_old = |log: fs::Metadata| log.modified().is_ok_and(is_long_ago);
            if !folder.undo_is_due() && fs::metadata(folder.log()).is_ok_and(is_old) {
                folder.remove();
            }
        }
    }

    /// The folders of all bridges, also of those that have ended.
    pub fn folders(&self) -> Vec<StateFolder> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.retain(|path| path.is_dir());
        folders.sort();
        folders.into_iter().map(StateFolder).collect()
    }
}

impl StateFolder {
    /// Creates the folder and takes its lock; `None` if another process has it.
    pub fn lock(&self) -> Result<Option<Lock>> {
        make_private(&self.0)?;
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = private_file(&mut options).open(&path).map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&path, error)),
        }
    }

    /// Whether a process has the lock.
    pub fn is_alive(&self) -> bool {
        let Ok(file) = File::open(self.0.join("lock")) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Waits until no process has the lock.
    pub async fn ended(&self) -> Result<()> {
        let path = self.0.join("lock");
        let Ok(file) = File::open(&path) else { return Ok(()) };
        let waiting = tokio::task::spawn_blocking(move || file.lock_shared());
        match waiting.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&path, error)),
            Err(error) => Err(failed(&path, io::Error::other(error))),
        }
    }

    /// The path of the control socket.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// The path of the log.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Notes the address of the target and the user there, if it was named, for a bridge that starts.
    pub fn note_target(&self, target: &str, user: Option<&str>) -> Result<()> {
        for outdated in ["ended", "user"] {
            let _ = fs::remove_file(self.0.join(outdated));
        }
        for (name, text) in [("target", Some(target)), ("user", user)] {
            let path = self.0.join(name);
            let written = text.map_or(Ok(()), |text| fs::write(&path, text));
            written.map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }

    /// The user that was noted.
    pub fn user(&self) -> Option<String> {
        fs::read_to_string(self.0.join("user")).ok()
    }

    /// The address that was noted.
    pub fn target(&self) -> Option<String> {
        fs::read_to_string(self.0.join("target")).ok()
    }

    /// Opens the log for appending; another process may be writing to it.
    pub fn open_log(&self) -> Result<File> {
        make_private(&self.0)?;
        let path = self.log();
        log::open(&path).map_err(|error| failed(&path, error))
    }

    /// Directs the log of this process there. It has to have the lock.
    pub fn begin_log(&self) -> Result<()> {
        let path = self.log();
        log::begin(&path).map_err(|error| failed(&path, error))
    }

    /// Removes the control socket. One that stays shows that the bridge was killed.
    pub fn remove_control_socket(&self) {
        let _ = fs::remove_file(self.control_socket());
    }

    /// Notes that the target has to be undone when it can be reached.
    pub fn undo_later(&self) {
        let _ = fs::write(self.0.join("undo"), "");
    }

    /// Notes that a person has ended a bridge that was killed, whose target can't be reached now.
    pub fn note_undo_instead_of_end(&self) {
        self.undo_later();
        self.remove_control_socket();
    }

    /// Notes that nothing is left to undo in the target.
    pub fn undone(&self) {
        let _ = fs::remove_file(self.0.join("undo"));
    }

    /// Whether the target has to be undone: that was noted, or the bridge was killed.
    pub fn undo_is_due(&self) -> bool {
        !self.is_alive() && (self.0.join("undo").exists() || self.has_died())
    }

    /// Whether the bridge's process was killed.
    pub fn has_died(&self) -> bool {
        !self.is_alive() && self.control_socket().exists()
    }

    /// Notes why the bridge ended by itself.
    pub fn note_end(&self, why: &str) {
        let _ = fs::write(self.0.join("ended"), why);
    }

    /// Why the bridge ended, if it wasn't stopped.
    pub fn end_reason(&self) -> Option<String> {
        if self.has_died() {
            return Some("its process was killed".to_owned());
        }
        fs::read_to_string(self.0.join("ended")).ok().filter(|_| !self.is_alive())
    }

    /// Removes the folder, unless a process has the lock.
    fn remove(&self) {
        if let Ok(Some(_lock)) = self.lock() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// How long the log of a bridge is kept after its end.
const KEPT: Duration = Duration::from_hours(7 * 24);

fn is_long_ago(moment: SystemTime) -> bool {
    moment.elapsed().is_ok_and(|since| since > KEPT)
}

/// Creates a folder that only this user can enter. An existing one has to be such a folder, and no link.
fn make_private(path: &Path) -> Result<()> {
    match make_private_folder(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(path, error));
        }
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    if privacy_of(path, &found) == Privacy::Private {
        return Ok(());
    }
    let message =
        format!("{} has to be a folder of your own that nobody else can enter", path.display());
    Err(Error::failed(message).hint("remove it, or set KEYBRIDGE_STATE to another folder"))
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::failed(path.display().to_string()).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bridge_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder(folder.path().join("one"));
        assert!(!state.is_alive());
        let lock = state.lock().unwrap().expect("nobody else has it");
        assert!(state.is_alive());
        assert!(state.lock().unwrap().is_none());
        drop(lock);
        assert!(!state.is_alive());
        assert!(state.lock().unwrap().is_some());
    }

    crate::platform::tests_on_unix! {
    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&open).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
        make_private(&folder.path().join("new")).unwrap();
    }
    }
}
