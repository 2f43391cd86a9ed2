//! One bridge for a home: a file there that is locked for the bridge's life. The lock goes with its
//! process, however that ends, unless it was handed over; a file that stays behind is used again.

mod take;

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
use crate::folder::euid;
use crate::quoted::quoted;
use crate::{BridgeToken, FileId};

pub(crate) use take::{Inheritance, Taken, take};

/// A pid and a token have fewer bytes.
const MAX_NOTE: usize = 128;

/// The lock on a home. Dropped, it leaves its file.
#[derive(Debug)]
pub(crate) struct HomeLock {
    file: File,
    path: PathBuf,
}

/// What came of trying to take a lock.
pub(crate) enum Attempt {
    Taken(HomeLock),
    Held(Held),
}

impl HomeLock {
    /// Where the file is.
    pub(crate) fn path_in(home: &Path) -> PathBuf {
        home.join(".keybridge-lock")
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn attempt(path: &Path) -> Result<Attempt, StartError> {
        loop {
            let file = open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Attempt::Held(Held { file })),
                // A file system without locks.
                Err(error) => tracing::warn!(%error, "{} can't be locked", path.display()),
            }
            let lock = Self { file, path: path.to_owned() };
            // Whoever had it removes the file while it is locked.
            if lock.is_in_place() {
                return Ok(Attempt::Taken(lock));
            }
        }
    }

    /// A lock that was handed over, if it is still the one of this path.
    pub(crate) fn adopt(file: File, path: &Path) -> Option<Self> {
        let lock = Self { file, path: path.to_owned() };
        lock.is_in_place().then_some(lock)
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
    pub(crate) fn sign(&self, bridge: Option<&BridgeToken>) {
        let token = bridge.map_or_else(String::new, |bridge| format!(" {bridge}"));
        let note = format!("{}{token}\n", getpid());
        let signed = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all_at(note.as_bytes(), 0));
        if let Err(error) = signed {
            tracing::debug!(%error, "the lock doesn't name us");
        }
    }

    /// Makes room for another process's name at the kernel.
    pub(crate) fn unsign(&self) {
        if let Err(error) = fcntl_lock(&self.file, FlockOperation::NonBlockingUnlock) {
            tracing::debug!(%error, "the lock still names us");
        }
    }
}

/// A lock that somebody else has.
pub(crate) struct Held {
    file: File,
}

impl Held {
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
        let mut note = [0; MAX_NOTE];
        let count = self.file.read_at(&mut note, 0).ok()?;
        let note = std::str::from_utf8(note.get(..count)?).ok()?;
        let (_, token) = note.strip_suffix('\n')?.split_once(' ')?;
        token.parse().ok()
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
