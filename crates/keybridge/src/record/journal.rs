//! The files of the record: lines are appended to the newest one, and the oldest one is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::head::{Head, LockedHead};
use super::line::{Line, hash};
use crate::platform::private_file;
use crate::supervisor::state::make_private;

/// The largest size of a file: some 6,000 operations.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// How many older files are kept.
pub(super) const OLDER: u32 = 4;

/// How much room there has to be on the disk for another line.
const PROBE: usize = 8 * 1024;

/// The record of a user.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    folder: PathBuf,
    limit: u64,
}

impl Journal {
    /// The one in a folder, which is created with the first line.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, limit: MOST_BYTES }
    }

    #[cfg(test)]
    pub(super) fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The file that lines are appended to.
    pub(crate) fn newest(&self) -> PathBuf {
        self.folder.join("record")
    }

    /// An older file; the larger the number, the older it is.
    pub(super) fn older(&self, number: u32) -> PathBuf {
        self.newest().with_extension(number.to_string())
    }

    /// The older files that may be there, the oldest first.
    pub(super) fn all_older(&self) -> impl Iterator<Item = PathBuf> {
        (1..=OLDER).rev().map(|number| self.older(number))
    }

    pub(super) fn head(&self) -> PathBuf {
        self.newest().with_extension("head")
    }

    /// Appends a line, made of its number and the hash before it.
    pub(super) fn append(&self, make: impl FnOnce(u64, String) -> Line) -> io::Result<()> {
        self.make_folder()?;
        let mut locked = LockedHead::open(&self.head())?;
        let mut head = self.head_to_append(&mut locked)?;
        let mut file = open(&self.newest())?;
        let mut size = file.metadata()?.len();
        // Only if the machine or a process stopped while it wrote, or somebody else did.
        let mut is_torn = size != head.size && adopt(&mut file, size, &mut head)?;
        let line = serde_json::to_vec(&make(head.count.saturating_add(1), head.hash.clone()))?;
        if size > 0 && size.saturating_add(length(&line)) >= self.limit {
            file = self.rotate(&mut locked, &mut head)?;
            (size, is_torn) = (0, false);
        }
        let text = [if is_torn { &b"\n"[..] } else { b"" }, &line, b"\n"].concat();
        if let Err(error) = file.write_all(&text) {
            // A part of it may be there.
            let _ = file.set_len(size);
            return Err(error);
        }
        let (count, size) = (head.count.saturating_add(1), size + length(&text));
        locked.write(&Head { count, hash: hash(&line), size, ..head })
    }

    /// Whether there is room for another line, and the right to write it. A process that was stopped while
    /// it had the lock is hardly waited for.
    pub(super) fn probe(&self) -> io::Result<()> {
        self.make_folder()?;
        let mut locked = LockedHead::open_soon(&self.head())?;
        self.head_to_append(&mut locked)?;
        open(&self.newest())?;
        tempfile::NamedTempFile::new_in(&self.folder)?.write_all(&[0; PROBE])
    }

    /// All that the older files have. They are read from the newest one on: while a new file is begun, one
    /// may be read twice, and none is missed.
    pub(crate) fn read_older(&self) -> io::Result<Vec<u8>> {
        let newest_first = (1..=OLDER).map(|number| read(&self.older(number)));
        let files: Vec<Vec<u8>> = newest_first.collect::<io::Result<_>>()?;
        Ok(files.into_iter().rev().flatten().collect())
    }

    fn make_folder(&self) -> io::Result<()> {
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent)?;
        }
        make_private(&self.folder).map_err(|error| io::Error::other(error.to_string()))
    }

    /// What the head says. If it was lost, the next line doesn't fit to the last one, so that this shows.
    fn head_to_append(&self, locked: &mut LockedHead) -> io::Result<Head> {
        if let Some(head) = locked.read()? {
            return Ok(head);
        }
        let (count, first) = (self.last_number()?, self.first_number()?.unwrap_or(1));
        let head = Head { count, first, ..Head::default() };
        locked.write(&head)?;
        Ok(head)
    }

    /// Begins a new file. The caller has the lock.
    fn rotate(&self, locked: &mut LockedHead, head: &mut Head) -> io::Result<File> {
        let kept = (1..OLDER).rev().map(|number| self.older(number)).chain([self.newest()]);
        let first = kept.map(|path| first_number_in(&path)).find_map(Result::transpose);
        if let Some(first) = first.transpose()?.filter(|_| self.older(OLDER).exists()) {
            // Written first: lines that are older than the head says are no harm.
            head.first = first;
            locked.write(head)?;
        }
        let mut to = self.older(OLDER);
        for from in (1..OLDER).rev().map(|number| self.older(number)).chain([self.newest()]) {
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => to = from,
            }
        }
        open(&self.newest())
    }

    fn last_number(&self) -> io::Result<u64> {
        let mut last = 0;
        for path in self.all_older().chain([self.newest()]) {
            let numbers = lines(&read(&path)?).filter_map(number_of).max();
            last = numbers.unwrap_or_default().max(last);
        }
        Ok(last)
    }

    fn first_number(&self) -> io::Result<Option<u64>> {
        let mut firsts = self.all_older().chain([self.newest()]).map(|path| first_number_in(&path));
        firsts.find_map(Result::transpose).transpose()
    }
}

/// Takes over lines after the last one that the head knows, if they fit to it. Says whether the last line has
/// no end.
fn adopt(file: &mut File, size: u64, head: &mut Head) -> io::Result<bool> {
    let known = head.size.min(size.saturating_sub(1));
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(known))?;
    file.read_to_end(&mut tail)?;
    if known == head.size {
        for line in lines(&tail) {
            let fits = serde_json::from_slice(line).is_ok_and(|next: Line| {
                next.n == head.count.saturating_add(1) && next.prev == head.hash
            });
            if !fits {
                break;
            }
            (head.count, head.hash) = (head.count.saturating_add(1), hash(line));
        }
    }
    Ok(tail.last().is_some_and(|&byte| byte != b'\n'))
}

/// The lines that have an end, without it.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

fn number_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice(line).ok().map(|line: Line| line.n)
}

fn first_number_in(path: &Path) -> io::Result<Option<u64>> {
    Ok(lines(&read(path)?).find_map(number_of))
}

/// What a file has; nothing if it isn't there.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

fn length(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn open(path: &Path) -> io::Result<File> {
    private_file(OpenOptions::new().create(true).read(true).append(true)).open(path)
}
