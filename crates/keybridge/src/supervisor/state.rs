//! The state of bridges on disk: a folder for each target, in the user's runtime folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

use crate::config::Invocation;
use crate::platform::{
    LockHolder, Privacy, System, expand, make_private_folder, privacy_of, private_file, user_tag,
    variable,
};
use crate::{Error, Result, log};

/// The folder of all bridges of this user.
#[derive(Debug, Clone)]
pub(crate) struct StateRoot(PathBuf);

/// The folder of one bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateFolder(PathBuf);

/// The lock that a bridge's process holds as long as it runs. A pid alone proves nothing.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code, reason = "held, not read")] File);

/// The file with what was set for the bridge.
const SETTINGS: &str = "settings.json";

/// The file that says that the target has to be undone, with what was set for the bridge.
const UNDO_NOTE: &str = "undo";

impl StateRoot {
    /// Opens the user's folder. It is created if it is missing, and refused if it belongs to another user.
    pub(crate) fn open() -> Result<Self> {
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
    pub(crate) fn folder(&self, key: &str) -> StateFolder {
        StateFolder(self.0.join(Self::id(key)))
    }

    /// What identifies a target, by the same key.
    pub(crate) fn id(key: &str) -> String {
        // Short, since the path of the control socket is limited.
        let mut hash = format!("{:x}", HexDisplay(&Sha256::digest(key)));
        hash.truncate(16);
        hash
    }

    /// The token that identifies a bridge to its helpers, different for each target, user and host. It
    /// isn't a secret.
    pub(crate) fn token(&self, key: &str) -> Result<String> {
        let path = self.0.join("host");
        let host = match fs::read(&path) {
            Ok(host) => host,
            Err(_) => self.new_host(&path).map_err(|error| failed(&path, error))?,
        };
        let hash = format!(
            "{:x}",
            HexDisplay(&Sha256::new().chain_update(host).chain_update(key).finalize())
        );
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
    pub(crate) fn prune(&self) {
        for folder in self.folders() {
            let is_old = |log: fs::Metadata| log.modified().is_ok_and(is_long_ago);
            if !folder.undo_is_due() && fs::metadata(folder.log()).is_ok_and(is_old) {
                folder.remove();
            }
        }
    }

    /// The folders of all bridges, also of those that have ended.
    pub(crate) fn folders(&self) -> Vec<StateFolder> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        folders.retain(|path| path.is_dir());
        folders.sort();
        folders.into_iter().map(StateFolder).collect()
    }
}

impl StateFolder {
    /// Creates the folder and takes its lock; `None` if another process has it.
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        make_private(&self.0)?;
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = private_file(&mut options).open(&path).map_err(|error| failed(&path, error))?;
        match file.try_lock() {
            Ok(()) => {
                let noted = file.set_len(0).and_then(|()| write!(&file, "{}", std::process::id()));
                noted.map_err(|error| failed(&path, error))?;
                Ok(Some(Lock(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&path, error)),
        }
    }

    /// What identifies its target.
    pub(crate) fn id(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether a process has the lock.
    pub(crate) fn is_alive(&self) -> bool {
        let Ok(file) = File::open(self.0.join("lock")) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// The process that has the lock; `None` if that isn't known.
    pub(crate) fn holder(&self) -> Option<LockHolder> {
        LockHolder::find(&self.0.join("lock")).ok().flatten()
    }

    /// Waits until no process has the lock.
    pub(crate) async fn ended(&self) -> Result<()> {
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
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// The path of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Notes the address of the target and the user there, if it was named, for a bridge that starts.
    pub(crate) fn note_target(&self, target: &str, user: Option<&str>) -> Result<()> {
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

    /// Keeps what is set for a bridge, for an `up` after its process was killed.
    pub(crate) fn keep_settings(&self, settings: &Invocation) -> Result<()> {
        let path = self.0.join(SETTINGS);
        let written = tempfile::NamedTempFile::new_in(&self.0).and_then(|mut file| {
            serde_json::to_writer(&mut file, settings)?;
            Ok(file.persist(&path)?)
        });
        written.map(drop).map_err(|error| failed(&path, error))
    }

    /// What was set for a bridge that runs, or whose process was killed. It is an error if that isn't known any
    /// more.
    pub(crate) fn kept_settings(&self) -> Result<Option<Invocation>> {
        if !self.has_control_socket() {
            return Ok(None);
        }
        let path = self.0.join(SETTINGS);
        read_settings(&path).map(Some).map_err(|error| {
            failed(&path, error).context("what was set for the last bridge isn't known any more")
        })
    }

    /// What was set for the bridge whose changes have to be undone, as far as that is known.
    pub(crate) fn settings_to_undo(&self) -> Option<Invocation> {
        let name = if self.has_control_socket() { SETTINGS } else { UNDO_NOTE };
        read_settings(&self.0.join(name)).ok()
    }

    /// The file that says what the bridge may lend at most.
    pub(crate) fn ceiling(&self) -> PathBuf {
        self.0.join("ceiling.json")
    }

    /// The user that was noted.
    pub(crate) fn user(&self) -> Option<String> {
        fs::read_to_string(self.0.join("user")).ok()
    }

    /// The address that was noted.
    pub(crate) fn target(&self) -> Option<String> {
        fs::read_to_string(self.0.join("target")).ok()
    }

    /// Opens the log for appending; another process may be writing to it.
    pub(crate) fn open_log(&self) -> Result<File> {
        make_private(&self.0)?;
        let path = self.log();
        log::open(&path).map_err(|error| failed(&path, error))
    }

    /// Directs the log of this process there. It has to have the lock.
    pub(crate) fn begin_log(&self) -> Result<()> {
        let path = self.log();
        log::begin(&path).map_err(|error| failed(&path, error))
    }

    /// Copies the log of this process there, beside what a terminal shows of it. It has to have the lock.
    pub(crate) fn begin_log_beside_terminal(&self) -> Result<()> {
        let path = self.log();
        log::begin_beside_terminal(&path).map_err(|error| failed(&path, error))
    }

    /// Removes the control socket. One that stays shows that the bridge was killed.
    pub(crate) fn remove_control_socket(&self) {
        let _ = fs::remove_file(self.control_socket());
    }

    /// Notes that the target has to be undone when it can be reached. What was set for the bridge is in the
    /// note: the settings may be those of another one by then.
    pub(crate) fn undo_later(&self) {
        let note = self.0.join(UNDO_NOTE);
        if fs::copy(self.0.join(SETTINGS), &note).is_err() {
            let _ = fs::write(note, "");
        }
    }

    /// Notes that a person has ended a bridge that was killed, whose target can't be undone now.
    pub(crate) fn note_undo_instead_of_end(&self) {
        if self.has_control_socket() {
            self.undo_later();
            self.remove_control_socket();
        }
    }

    /// Notes that nothing is left to undo in the target.
    pub(crate) fn note_undone(&self) {
        let _ = fs::remove_file(self.0.join(UNDO_NOTE));
    }

    /// Whether the target has to be undone: that was noted, or the bridge was killed.
    pub(crate) fn undo_is_due(&self) -> bool {
        !self.is_alive() && (self.0.join(UNDO_NOTE).exists() || self.has_control_socket())
    }

    /// Whether the bridge's process was killed.
    pub(crate) fn has_died(&self) -> bool {
        !self.is_alive() && self.has_control_socket()
    }

    /// Whether a bridge runs or was killed. Who has the lock knows that it was killed.
    pub(crate) fn has_control_socket(&self) -> bool {
        self.control_socket().exists()
    }

    /// When the bridge was started last.
    pub(crate) fn started(&self) -> Option<SystemTime> {
        fs::metadata(self.0.join("target")).and_then(|noted| noted.modified()).ok()
    }

    /// Notes why the bridge ended by itself.
    pub(crate) fn note_end(&self, why: &str) {
        let _ = fs::write(self.0.join("ended"), why);
    }

    /// Why the bridge ended, if it wasn't stopped.
    pub(crate) fn end_reason(&self) -> Option<String> {
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

fn read_settings(path: &Path) -> io::Result<Invocation> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// How long the log of a bridge is kept after its end.
const KEPT: Duration = Duration::from_hours(7 * 24);

fn is_long_ago(moment: SystemTime) -> bool {
    moment.elapsed().is_ok_and(|since| since > KEPT)
}

/// Creates a folder that only this user can enter. An existing one has to be such a folder, and no link.
pub(crate) fn make_private(path: &Path) -> Result<()> {
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
    use std::time::Instant;

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
        // A child of another test has the lock's descriptor until it runs its program.
        let until = Instant::now() + Duration::from_mins(1);
        while state.is_alive() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        assert!(state.lock().unwrap().is_some());
    }

    #[test]
    fn the_settings_of_a_bridge_are_known_until_its_target_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder(folder.path().to_owned());
        let keep = |helper: &str| {
            let mut settings = Invocation::default();
            settings.options.helper = Some(helper.to_owned());
            state.keep_settings(&settings).unwrap();
        };
        let to_undo = || state.settings_to_undo().and_then(|settings| settings.options.helper);
        let is_killed = || fs::write(state.control_socket(), "").unwrap();
        keep("first");
        assert_eq!(to_undo(), None, "nothing is to be undone");
        state.undo_later();
        // Those of an `up` that has failed.
        keep("second");
        assert_eq!(to_undo().as_deref(), Some("first"));
        state.note_undo_instead_of_end();
        assert_eq!(to_undo().as_deref(), Some("first"));
        is_killed();
        assert_eq!(to_undo().as_deref(), Some("second"));
        state.note_undo_instead_of_end();
        assert!(!state.control_socket().exists());
        keep("third");
        assert_eq!(to_undo().as_deref(), Some("second"));
        state.note_undone();
        assert_eq!(to_undo(), None);
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
