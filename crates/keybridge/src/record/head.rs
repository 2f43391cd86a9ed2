//! The file beside the record: how many lines there are, and the hash of the last one. Whoever appends
//! holds its lock, so that lines of several bridges come one after the other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::line::NO_HASH;
use crate::platform::private_file;

/// Its size. It is always the same, so that writing needs no room on the disk.
const SIZE: usize = 256;

/// How long another process may have the lock, which it needs for a fraction of a millisecond.
const LOCK_TRIES: u32 = 1000;

/// The same for who only asks whether it can be had, on the thread that serves all clients.
const PROBE_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// The number of the last line.
    pub(super) count: u64,
    /// Its hash.
    pub(super) hash: String,
    /// The size of the file that it is in.
    pub(super) size: u64,
    /// The number of the first line that is kept.
    pub(super) first: u64,
}

/// Before the first line.
impl Default for Head {
    fn default() -> Self {
        Self { count: 0, hash: NO_HASH.to_owned(), size: 0, first: 1 }
    }
}

/// The file, locked until this is dropped.
#[derive(Debug)]
pub(super) struct LockedHead(File);

impl LockedHead {
    /// Opens the file to append; it is created if it isn't there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        locked(file(path)?, LOCK_TRIES, File::try_lock)
    }

    /// The same, but hardly waits.
    pub(super) fn open_soon(path: &Path) -> io::Result<Self> {
        locked(file(path)?, PROBE_TRIES, File::try_lock)
    }

    /// Opens the file to read.
    pub(super) fn open_to_read(path: &Path) -> io::Result<Self> {
        locked(File::open(path)?, LOCK_TRIES, File::try_lock_shared)
    }

    /// What it says. `None` if it says nothing that can be read.
    pub(super) fn read(&mut self) -> io::Result<Option<Head>> {
        let mut text = Vec::new();
        self.0.seek(SeekFrom::Start(0))?;
        (&self.0).take(2 * SIZE as u64).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text).ok())
    }

    pub(super) fn write(&mut self, head: &Head) -> io::Result<()> {
        let mut text = serde_json::to_vec(head)?;
        text.resize(SIZE - 1, b' ');
        text.push(b'\n');
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(&text)
    }
}

fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    private_file(&mut options).open(path)
}

fn locked(
    file: File,
    tries: u32,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> io::Result<LockedHead> {
    for _ in 0..tries {
        match try_lock(&file) {
            Ok(()) => return Ok(LockedHead(file)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another process doesn't give its lock back"))
}
