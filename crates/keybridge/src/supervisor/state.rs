//! Where bridges leave their traces: a folder for each target, in the user's runtime folder.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::{Error, Result, log};

/// The folder of all bridges of this user.
#[derive(Debug, Clone)]
pub struct StateRoot(PathBuf);

/// The folder of one bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

/// The proof that a bridge lives: held by its process for its life. A pid alone proves nothing.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not read")] File);

impl StateRoot {
    /// The user's own folder; made if it isn't there, refused if it is somebody else's.
    pub fn open() -> Result<Self> {
        let set =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = match set("KEYBRIDGE_STATE").or_else(|| {
            set("XDG_RUNTIME_DIR")
                .filter(|folder| folder.is_dir())
                .map(|folder| folder.join("keybridge"))
        }) {
            Some(path) => path,
            None => std::env::temp_dir().join(format!("keybridge-state-{}", own_uid())),
        };
        make_private(&path)?;
        Ok(Self(path))
    }

    /// The folder of the bridge to a target that is known by `key`.
    pub fn folder(&self, key: &str) -> StateFolder {
        // Short, since the control socket's path may have 107 bytes.
        let hash = format!("{:x}", Sha256::digest(key));
        StateFolder(self.0.join(hash.get(..16).unwrap_or(&hash)))
    }

    /// What helpers of the bridge to such a target know it by: another one for each user of each host.
    /// It tells bridges apart and proves nothing.
    pub fn token(&self, key: &str) -> Result<String> {
        let path = self.0.join("host");
        let host = match fs::read(&path) {
            Ok(host) => host,
            Err(_) => self.new_host(&path).map_err(|error| failed(&path, &error))?,
        };
        let hash = format!("{:x}", Sha256::new().chain_update(host).chain_update(key).finalize());
        Ok(hash.get(..32).unwrap_or(&hash).to_owned())
    }

    /// Notes who we are. Of several who do so at once the first one counts.
    fn new_host(&self, path: &Path) -> io::Result<Vec<u8>> {
        let host: [u8; 16] = keybridge_link::random()?;
        let new = tempfile::NamedTempFile::new_in(&self.0)?;
        fs::write(new.path(), host)?;
        match new.persist_noclobber(path) {
            Ok(_) => Ok(host.to_vec()),
            Err(_) => fs::read(path),
        }
    }

    /// Removes what bridges have left that ended long ago.
    pub fn prune(&self) {
        for folder in self.folders() {
            let is_old = |log: fs::Metadata| log.modified().is_ok_and(is_long_ago);
            if !folder.undo_is_due() && fs::metadata(folder.log()).is_ok_and(is_old) {
                folder.remove();
            }
        }
    }

    /// Every folder that is there.
    pub fn folders(&self) -> Vec<StateFolder> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.retain(|path| path.is_dir());
        folders.sort();
        folders.into_iter().map(StateFolder).collect()
    }
}

impl StateFolder {
    /// Makes the folder and takes its lock; `None` if a living bridge has it.
    pub fn lock(&self) -> Result<Option<Lock>> {
        make_private(&self.0)?;
        let path = self.0.join("lock");
        let open =
            || OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = open().map_err(|error| failed(&path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(&path, &error.into())),
        }
    }

    /// Whether a bridge lives there.
    pub fn is_alive(&self) -> bool {
        let Ok(file) = File::open(self.0.join("lock")) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Waits until no bridge lives there.
    pub async fn ended(&self) -> Result<()> {
        let path = self.0.join("lock");
        let Ok(file) = File::open(&path) else { return Ok(()) };
        let waiting = tokio::task::spawn_blocking(move || flock(&file, FlockOperation::LockShared));
        match waiting.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&path, &error.into())),
            Err(error) => Err(failed(&path, &io::Error::other(error))),
        }
    }

    /// Where the bridge is talked to.
    pub fn control_socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Where it writes what it does.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Notes which target a bridge that begins is for.
    pub fn note_target(&self, target: &str) -> Result<()> {
        let _ = fs::remove_file(self.0.join("ended"));
        let path = self.0.join("target");
        fs::write(&path, target).map_err(|error| failed(&path, &error))
    }

    /// Which target the folder is for, as was noted.
    pub fn target(&self) -> Option<String> {
        fs::read_to_string(self.0.join("target")).ok()
    }

    /// Opens the log to add to it, whoever's it is.
    pub fn open_log(&self) -> Result<File> {
        make_private(&self.0)?;
        let path = self.log();
        log::open(&path).map_err(|error| failed(&path, &error))
    }

    /// Has this process, which has the lock, write its log there.
    pub fn begin_log(&self) -> Result<()> {
        let path = self.log();
        log::begin(&path).map_err(|error| failed(&path, &error))
    }

    /// Removes what makes a bridge look alive.
    pub fn remove_control_socket(&self) {
        let _ = fs::remove_file(self.control_socket());
    }

    /// Notes that the target is to be undone when it can be reached.
    pub fn undo_later(&self) {
        let _ = fs::write(self.0.join("undo"), "");
    }

    /// Notes that the target is as it was before.
    pub fn undone(&self) {
        let _ = fs::remove_file(self.0.join("undo"));
    }

    /// Whether something is left in the target: that was noted, or the bridge died.
    pub fn undo_is_due(&self) -> bool {
        !self.is_alive() && (self.0.join("undo").exists() || self.has_died())
    }

    /// Whether the bridge's process ended without a word.
    pub fn has_died(&self) -> bool {
        !self.is_alive() && self.control_socket().exists()
    }

    /// Notes why the bridge ended by itself.
    pub fn note_end(&self, why: &str) {
        let _ = fs::write(self.0.join("ended"), why);
    }

    /// Why the bridge ended, if it was not asked to.
    pub fn end_reason(&self) -> Option<String> {
        if self.has_died() {
            return Some("its process was killed".to_owned());
        }
        fs::read_to_string(self.0.join("ended")).ok().filter(|_| !self.is_alive())
    }

    /// Removes the folder, unless a bridge lives there.
    fn remove(&self) {
        if let Ok(Some(_lock)) = self.lock() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Who looks for the log of a bridge does so within some days.
const KEPT: Duration = Duration::from_hours(7 * 24);

fn is_long_ago(moment: SystemTime) -> bool {
    moment.elapsed().is_ok_and(|since| since > KEPT)
}

/// Makes a folder that is ours alone. One that is there has to be: checked without following links.
fn make_private(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(path, &error));
        }
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(path).map_err(|error| failed(path, &error))?;
    if found.is_dir() && found.uid() == own_uid() && found.mode().trailing_zeros() >= 6 {
        return Ok(());
    }
    let message =
        format!("{} has to be a folder of your own that nobody else can enter", path.display());
    Err(Error::failed(message).hint("remove it, or set KEYBRIDGE_STATE to another folder"))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::failed(format!("{}: {error}", path.display()))
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
