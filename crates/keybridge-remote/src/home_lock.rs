//! One bridge for a home: a file there that is locked for the bridge's life. The lock goes with its
//! process, however that ends; a file that stays behind is used again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockOffsetType, FlockType, Pid, Signal, fcntl_getlk, getpid, kill_process,
};
use tokio::time::{Instant, sleep};

use crate::FileId;
use crate::error::{Problem, StartError};
use crate::folder::euid;
use crate::quoted::quoted;

/// How long a bridge that was told to end may take.
const END_TIME: Duration = Duration::from_secs(5);

/// How long one may take that is about to end by itself.
const GRACE_TIME: Duration = Duration::from_secs(1);

/// How often it is looked whether it has.
const POLL: Duration = Duration::from_millis(20);

/// The lock on a home. Dropped, it leaves its file.
#[derive(Debug)]
pub(crate) struct HomeLock {
    file: File,
    path: PathBuf,
}

impl HomeLock {
    /// Takes the lock; who has it, and with it the socket, is told to end if its place is to be taken.
    pub(crate) async fn take(
        home: &Path,
        socket: &Path,
        replace: bool,
    ) -> Result<Self, StartError> {
        let path = home.join(".keybridge-lock");
        let start = Instant::now();
        let mut told = None;
        loop {
            let file = open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let holder = holder(&file);
                    if start.elapsed() > if replace { END_TIME } else { GRACE_TIME } {
                        return Err(in_use(socket, holder, replace));
                    }
                    if let Some(pid) = holder.filter(|_| replace && told != holder) {
                        tracing::info!("telling another bridge (pid {pid}) to end");
                        told = holder;
                        match kill_process(pid, Signal::TERM) {
                            // It went this moment.
                            Ok(()) | Err(Errno::SRCH) => {}
                            Err(error) => return Err(cannot_tell(socket, pid, error)),
                        }
                    }
                    sleep(POLL).await;
                    continue;
                }
                // A file system without locks.
                Err(error) => tracing::warn!(%error, "{} can't be locked", path.display()),
            }
            let lock = Self { file, path: path.clone() };
            // Whoever had it removes the file while it is locked.
            if lock.is_in_place() {
                lock.sign();
                return Ok(lock);
            }
        }
    }

    /// Removes the file, and lets the lock go.
    pub(crate) fn release(self) -> io::Result<()> {
        if self.is_in_place() { std::fs::remove_file(&self.path) } else { Ok(()) }
    }

    fn is_in_place(&self) -> bool {
        let (here, there) = (self.file.metadata(), std::fs::symlink_metadata(&self.path));
        here.is_ok_and(|here| there.is_ok_and(|there| FileId::of(&here) == FileId::of(&there)))
    }

    /// Says who has the lock: to the kernel, which others believe, and in the file for people.
    fn sign(&self) {
        let signed = fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all_at(format!("{}\n", getpid()).as_bytes(), 0));
        if let Err(error) = signed {
            tracing::debug!(%error, "the lock doesn't name us");
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

/// Who has the lock, by the kernel's word: what stands in the file may be old, or the number of
/// another container's process.
fn holder(file: &File) -> Option<Pid> {
    let whole = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    fcntl_getlk(file, &whole).ok().flatten()?.pid
}

fn in_use(socket: &Path, holder: Option<Pid>, told: bool) -> StartError {
    let shown = socket.display();
    let message = |who: &str| format!("{shown} is in use by another bridge, {who}");
    StartError::InUse(match holder {
        Some(pid) if told => {
            Problem::new(message(&format!("keybridge-remote (pid {pid}), which doesn't end")))
                .hint(format!("kill -KILL {pid}"))
        }
        Some(pid) => Problem::new(message(&format!("keybridge-remote (pid {pid})")))
            .hint("stop it, or take its place with --replace"),
        None => {
            Problem::new(message("which runs outside of this target")).hint("stop it where it runs")
        }
    })
}

fn cannot_tell(socket: &Path, pid: Pid, error: Errno) -> StartError {
    let shown = socket.display();
    let message = format!("{shown} is in use by another bridge (pid {pid}): ending it: {error}");
    StartError::InUse(Problem::new(message).hint(format!("kill {pid}")))
}
