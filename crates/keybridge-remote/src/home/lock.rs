//! One bridge for a home: a file there that is locked for the bridge's life. The lock goes with its
//! process, however that ends, unless it was handed over; a file that stays behind is used again.

mod acquire;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockOffsetType, FlockType, Pid, PidfdFlags, Signal, fcntl_getlk, getpid, kill_process,
    pidfd_open, pidfd_send_signal,
};

use crate::error::{Problem, StartError};
use crate::home::safe_path::euid;
use crate::shell_quote::quoted;
use crate::{BridgeToken, FileId};

use crate::footprint::Footprint;
pub(crate) use acquire::{AcquiredLock, Inherited, acquire};

/// A pid, a token and some edits have fewer bytes.
const MAX_NOTE: usize = 16 * 1024;

/// The lock on a home. Dropped, it leaves its file.
#[derive(Debug)]
pub(crate) struct LaneLock {
    file: File,
    path: PathBuf,
    bridge: RefCell<Option<BridgeToken>>,
    record: RefCell<Footprint>,
}

/// What came of trying to take a lock.
pub(crate) enum LockAttempt {
    Acquired(LaneLock),
    Held(HeldLock),
}

impl LaneLock {
    /// Where the file is.
    pub(crate) fn path_in(home: &Path) -> PathBuf {
        home.join(".keybridge-lock")
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn attempt(path: &Path) -> Result<LockAttempt, StartError> {
        loop {
            let file = open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(LockAttempt::Held(HeldLock { file })),
                // A file system without locks.
                Err(error) => tracing::warn!(%error, "{} can't be locked", path.display()),
            }
            // Whoever had it removes the file while it is locked.
            if let Some(lock) = Self::adopt(file, path) {
                return Ok(LockAttempt::Acquired(lock));
            }
        }
    }

    /// A lock that is ours or was handed over, if it is still the one of this path. It knows what its
    /// last holder has done.
    pub(crate) fn adopt(file: File, path: &Path) -> Option<Self> {
        let record =
            LockFileText::read(&file).map_or_else(Footprint::default, |note| note.record());
        let (bridge, record) = (RefCell::default(), RefCell::new(record));
        let lock = Self { file, path: path.to_owned(), bridge, record };
        lock.is_in_place().then_some(lock)
    }

    /// What was done under this lock.
    pub(crate) fn record(&self) -> Footprint {
        self.record.borrow().clone()
    }

    /// Notes what will be done under this lock.
    pub(crate) fn set_record(&self, record: Footprint) {
        self.record.replace(record);
        self.write_note();
    }

    /// The open file that has the lock, to be handed over.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Removes the file. The lock goes when it is dropped.
    pub(crate) fn release(&self) -> io::Result<()> {
        if self.is_in_place() { std::fs::remove_file(&self.path) } else { Ok(()) }
    }

    fn is_in_place(&self) -> bool {
        let (here, there) = (self.file.metadata(), std::fs::symlink_metadata(&self.path));
        here.is_ok_and(|here| there.is_ok_and(|there| FileId::of(&here) == FileId::of(&there)))
    }

    /// Says who has the lock: to the kernel, which others believe, and in the file, for people and
    /// for the next helper of the same bridge.
    pub(crate) fn set_holder(&self, bridge: Option<&BridgeToken>) {
        self.bridge.replace(bridge.cloned());
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            tracing::debug!(%error, "the lock doesn't name us");
        }
        self.write_note();
    }

    fn write_note(&self) {
        let token = self.bridge.borrow().as_ref().map_or_else(String::new, |it| format!(" {it}"));
        let mut note = format!("{}{token}\n", getpid()).into_bytes();
        note.extend(self.record.borrow().encode());
        let written = self.file.set_len(0).and_then(|()| self.file.write_all_at(&note, 0));
        if let Err(error) = written {
            tracing::debug!(%error, "the lock's file doesn't tell of us");
        }
    }

    /// Makes room for another process's name at the kernel.
    pub(crate) fn clear_holder(&self) {
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock) {
            tracing::debug!(%error, "the lock still names us");
        }
    }
}

/// A lock that somebody else has.
pub(crate) struct HeldLock {
    file: File,
}

impl HeldLock {
    /// Who has it, by the kernel's word: what stands in the file may be old, or the number of another
    /// container's process.
    pub(crate) fn holder(&self) -> Option<Pid> {
        let whole = Flock {
            start: 0,
            length: 0,
            pid: None,
            typ: FlockType::WriteLock,
            offset_type: FlockOffsetType::Set,
        };
        fcntl_getlk(&self.file, &whole).ok().flatten()?.pid
    }

    /// The bridge of whoever has it, if it has said so.
    pub(crate) fn bridge(&self) -> Option<BridgeToken> {
        LockFileText::read(&self.file)?.bridge()
    }

    /// Kills whoever has it, if that is still `pid`.
    pub(crate) fn kill(&self, pid: Pid) -> Result<(), Errno> {
        let killed = match pidfd_open(pid, PidfdFlags::empty()) {
            // The number can have passed to another process since it was asked for.
            Ok(_) if self.holder() != Some(pid) => Ok(()),
            Ok(process) => pidfd_send_signal(process, Signal::KILL),
            // An old kernel, or a filter that doesn't know the call.
            Err(Errno::NOSYS | Errno::PERM) => kill_process(pid, Signal::KILL),
            Err(error) => Err(error),
        };
        match killed {
            // It went this moment.
            Err(Errno::SRCH) => Ok(()),
            result => result,
        }
    }
}

/// What stands in the file: a pid, a token if there is one, and then the record.
struct LockFileText(Vec<u8>);

impl LockFileText {
    fn read(file: &File) -> Option<Self> {
        let mut note = vec![0; MAX_NOTE];
        let count = file.read_at(&mut note, 0).ok()?;
        note.truncate(count);
        Some(Self(note))
    }

    fn bridge(&self) -> Option<BridgeToken> {
        let first = self.0.split(|&byte| byte == b'\n').next()?;
        let (_, token) = std::str::from_utf8(first).ok()?.split_once(' ')?;
        token.parse().ok()
    }

    fn record(&self) -> Footprint {
        Footprint::decode(&self.0)
    }
}

fn open(path: &Path) -> Result<File, StartError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
        .open(path)
        .map_err(|error| StartError::io("opening", path, &error))?;
    let metadata = file.metadata().map_err(|error| StartError::io("looking at", path, &error))?;
    if metadata.is_file() && metadata.uid() == euid() {
        return Ok(file);
    }
    let shown = path.display();
    let problem = Problem::new(format!("{shown} is not a file of uid {}", euid()))
        .hint(format!("rm {}", quoted(path)));
    Err(StartError::NotPermitted(problem))
}
