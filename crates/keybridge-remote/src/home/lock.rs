//! The lock that allows one helper in a lane's folder: a file that is locked for the helper's life. The
//! lock ends with its process. A file that is left behind is used again.

use std::cell::RefCell;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use keybridge_proto::report::FailureKind;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockOffsetType, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, getpid, kill_process,
    pidfd_open, pidfd_send_signal,
};

use crate::error::{Error, quoted};
use crate::home::safe_path::{euid, open_no_link};
use crate::{BridgeToken, FileId};

/// A pid, a token and the changes of a lane have fewer bytes.
const MAX_SIZE: usize = 16 * 1024;

/// A lock that we hold. Dropped, it leaves its file.
#[derive(Debug)]
pub(crate) struct LaneLock {
    file: File,
    path: PathBuf,
    bridge: RefCell<Option<BridgeToken>>,
    stored: RefCell<Vec<u8>>,
}

/// What is known about a lock.
#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) is_held: bool,
    /// Its holder, if that is a process of this target, or the last one that the file names.
    pub(crate) pid: Option<Pid>,
}

/// The result of trying to lock.
pub(crate) enum LockAttempt {
    Acquired(LaneLock),
    Held(HeldLock),
}

impl LaneLock {
    /// Where the file is.
    pub(crate) fn path_in(home: &Path) -> PathBuf {
        home.join(".keybridge-lock")
    }

    /// What is known about the lock, if there is one. Changes nothing.
    pub(crate) fn look(path: &Path) -> Option<LockState> {
        let file = open_no_link(OpenOptions::new().read(true), path).ok()?;
        file.metadata().ok().filter(Metadata::is_file)?;
        let (text, holder) = (LockFileText::read(&file)?, kernel_lock(&file));
        let pid = match &holder {
            Some(holder) => holder.pid,
            None => text.pid(),
        };
        Some(LockState { is_held: holder.is_some(), pid })
    }

    /// Acquires the lock if it is free.
    pub(crate) fn attempt(path: &Path) -> Result<LockAttempt, Error> {
        loop {
            let file = open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(LockAttempt::Held(HeldLock { file })),
                // A file system without locks.
                Err(error) => tracing::warn!(%error, "can't lock {}", path.display()),
            }
            // The last holder may have removed the file before it released the lock.
            if let Some(lock) = Self::adopt(file, path) {
                return Ok(LockAttempt::Acquired(lock));
            }
        }
    }

    /// A lock that is ours, if it is still the one of this path. It has what its last holder has stored.
    fn adopt(file: File, path: &Path) -> Option<Self> {
        let text = LockFileText::read(&file).unwrap_or_default();
        let (bridge, stored) = (RefCell::new(text.bridge()), RefCell::new(text.stored().to_vec()));
        let lock = Self { file, path: path.to_owned(), bridge, stored };
        lock.is_in_place().then_some(lock)
    }

    /// The bridge of the holder, or before [`Self::set_holder`] that of the last one.
    pub(crate) fn bridge(&self) -> Option<BridgeToken> {
        self.bridge.borrow().clone()
    }

    /// What is stored behind the first line.
    pub(crate) fn stored(&self) -> Vec<u8> {
        self.stored.borrow().clone()
    }

    /// Stores lines behind the first one. After an error the file has the old ones.
    pub(crate) fn store(&self, stored: Vec<u8>) -> Result<(), Error> {
        self.write(&stored).map_err(|error| Error::io("write", &self.path, error))?;
        self.stored.replace(stored);
        Ok(())
    }

    /// Removes the file. The lock goes when it is dropped.
    pub(crate) fn remove_file(&self) -> Result<(), Error> {
        if !self.is_in_place() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(|error| Error::io("remove", &self.path, error))
    }

    fn is_in_place(&self) -> bool {
        let (here, there) = (self.file.metadata(), std::fs::symlink_metadata(&self.path));
        here.is_ok_and(|here| there.is_ok_and(|there| FileId::of(&here) == FileId::of(&there)))
    }

    /// Names this process as the holder: in the file, for people and for the next helper of the same bridge,
    /// and to the kernel, which others ask. In this order, so that our pid never goes with the token of the last
    /// holder.
    pub(crate) fn set_holder(&self, bridge: Option<&BridgeToken>) {
        self.bridge.replace(bridge.cloned());
        if let Err(error) = self.write(&self.stored.borrow()) {
            tracing::debug!(%error, "can't name this process in the lock file");
        }
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            tracing::debug!(%error, "can't name this process in the lock");
        }
    }

    /// Writes over the old text and cuts it afterwards: at no time is a line missing that both have.
    fn write(&self, stored: &[u8]) -> io::Result<()> {
        let token = self.bridge.borrow().as_ref().map_or_else(String::new, |it| format!(" {it}"));
        let text = [format!("{}{token}\n", getpid()).as_bytes(), stored].concat();
        if text.len() > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let old = LockFileText::read(&self.file).map_or_else(Vec::new, |text| text.0);
        let written = self.file.write_all_at(&text, 0);
        if written.is_err() {
            let restored = self.file.write_all_at(&old, 0);
            let cut = self.file.set_len(old.len() as u64);
            if let Err(error) = restored.and(cut) {
                tracing::warn!(%error, "can't restore {}", self.path.display());
            }
            return written;
        }
        self.file.set_len(text.len() as u64)
    }
}

/// A lock that another process holds.
pub(crate) struct HeldLock {
    file: File,
}

impl HeldLock {
    /// Who holds it, as the kernel says: the file may be old, or name a process of another container.
    pub(crate) fn holder(&self) -> Option<Pid> {
        kernel_lock(&self.file)?.pid
    }

    /// The bridge of the holder, if the file names one.
    pub(crate) fn bridge(&self) -> Option<BridgeToken> {
        LockFileText::read(&self.file)?.bridge()
    }

    /// Sends the holder a signal, if that is still `pid`.
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) -> Result<(), Errno> {
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            // The number can have passed to another process since it was asked for.
            Ok(_) if self.holder() != Some(pid) => Ok(()),
            Ok(process) => pidfd_send_signal(process, signal),
            // An old kernel, or a filter that doesn't know the call.
            Err(Errno::NOSYS | Errno::PERM) => kill_process(pid, signal),
            Err(error) => Err(error),
        };
        match sent {
            // It has just ended.
            Err(Errno::SRCH) => Ok(()),
            result => result,
        }
    }
}

/// The lock that names the holder, as the kernel has it.
fn kernel_lock(file: &File) -> Option<Flock> {
    let whole = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    fcntl_getlk(file, &whole).ok().flatten()
}

/// What the file says: on its first line a pid, and a token if there is one; then what is stored.
#[derive(Default)]
struct LockFileText(Vec<u8>);

impl LockFileText {
    fn read(file: &File) -> Option<Self> {
        let mut text = vec![0; MAX_SIZE];
        let count = file.read_at(&mut text, 0).ok()?;
        text.truncate(count);
        Some(Self(text))
    }

    fn first_line(&self) -> Option<&str> {
        std::str::from_utf8(self.0.split(|&byte| byte == b'\n').next()?).ok()
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.first_line()?.split(' ').next()?.parse().ok()?)
    }

    fn bridge(&self) -> Option<BridgeToken> {
        let (_, token) = self.first_line()?.split_once(' ')?;
        token.parse().ok()
    }

    fn stored(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == b'\n');
        end.and_then(|end| self.0.get(end + 1..)).unwrap_or_default()
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = open_no_link(&mut options, path).map_err(|error| Error::io("open", path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io("look at", path, error))?;
    if metadata.is_file() && metadata.uid() == euid() {
        return Ok(file);
    }
    let shown = path.display();
    let message = format!("{shown} is not a file of uid {}", euid());
    Err(Error::new(FailureKind::NotPermitted, message).hint(format!("move {} away", quoted(path))))
}
