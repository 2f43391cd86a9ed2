//! Checks the chain of the record, its length and its last hash.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::Journal;
use super::head::{Head, LockedHead};
use super::journal::read;
use super::line::{Line, NO_HASH, hash};

/// A record whose lines are those that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    /// How many lines are kept.
    pub(crate) lines: u64,
    /// How many older ones were removed, since there were too many.
    pub(crate) removed: u64,
    /// The hash of the last one.
    pub(crate) last: String,
    /// How many of them the last hash that was kept doesn't cover.
    pub(crate) uncovered: u64,
}

/// The first place where a record isn't what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    file: PathBuf,
    /// The number of the line in the file, from 1. `None` if it isn't one line.
    line: Option<usize>,
    why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl Journal {
    /// Checks all that is kept, while nobody writes.
    pub(crate) fn verify(&self) -> io::Result<Result<Verified, Broken>> {
        let mut locked = match LockedHead::open_to_read(&self.head()) {
            Ok(locked) => Some(locked),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let head = match &mut locked {
            Some(locked) => locked.read()?,
            None => None,
        };
        let mut files = Vec::new();
        for path in self.all_older().chain([self.newest()]) {
            let text = read(&path)?;
            files.push((path, text));
        }
        // Bridges needn't wait any longer.
        drop(locked);
        if head.is_none() && files.iter().all(|(_, text)| text.is_empty()) {
            return Ok(Ok(Chain::new(Head::default()).verified()));
        }
        let Some(head) = head else {
            let why = "the last hash and the count are missing".to_owned();
            return Ok(Err(Broken { file: self.head(), line: None, why }));
        };
        let mut chain = Chain::new(head);
        for (path, text) in &files {
            if let Err(broken) = chain.file(path, text) {
                return Ok(Err(broken));
            }
        }
        Ok(chain.end(self.newest()))
    }
}

/// The lines that were checked.
struct Chain {
    head: Head,
    lines: u64,
    last: Option<Last>,
}

/// The last one of them.
struct Last {
    n: u64,
    hash: String,
    file: PathBuf,
    line: usize,
}

impl Chain {
    const fn new(head: Head) -> Self {
        Self { head, lines: 0, last: None }
    }

    fn file(&mut self, path: &Path, text: &[u8]) -> Result<(), Broken> {
        for (at, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
            self.line(path, at + 1, line)?;
        }
        Ok(())
    }

    fn line(&mut self, path: &Path, at: usize, text: &[u8]) -> Result<(), Broken> {
        let broken =
            |why: &str| Broken { file: path.to_owned(), line: Some(at), why: why.to_owned() };
        let Some(text) = text.strip_suffix(b"\n") else {
            return Err(broken("it has no end: it was cut, or its writer was stopped"));
        };
        let Ok(line) = serde_json::from_slice::<Line>(text) else {
            return Err(broken("it isn't a line as it was written"));
        };
        match &self.last {
            None if line.n > self.head.first => {
                return Err(broken(&format!(
                    "it is the first one and has the number {}: {} before it are missing",
                    line.n,
                    line.n - self.head.first
                )));
            }
            None if line.n == 1 && line.prev != NO_HASH => {
                return Err(broken("it isn't as it was written"));
            }
            Some(last) if line.n != last.n.saturating_add(1) => {
                let (n, before) = (line.n, last.n);
                return Err(broken(&format!("its number is {n} after {before}")));
            }
            Some(last) if line.prev != last.hash => {
                // Its own hash is checked by the next one.
                let why = "it isn't as it was written, by what the next line says of it";
                let (file, line) = (last.file.clone(), Some(last.line));
                return Err(Broken { file, line, why: why.to_owned() });
            }
            None | Some(_) => {}
        }
        let hash = hash(text);
        if line.n == self.head.count && hash != self.head.hash {
            return Err(broken("it isn't as it was written, by the last hash that was kept"));
        }
        self.lines += 1;
        self.last = Some(Last { n: line.n, hash, file: path.to_owned(), line: at });
        Ok(())
    }

    fn end(self, newest: PathBuf) -> Result<Verified, Broken> {
        let last = self.last.as_ref().map_or(0, |last| last.n);
        match self.head.count.checked_sub(last) {
            None | Some(0) => Ok(self.verified()),
            Some(missing) => {
                let why = format!("{missing} at the end are missing: the last one is {last}");
                Err(Broken { file: newest, line: None, why })
            }
        }
    }

    fn verified(self) -> Verified {
        let (n, last) = self.last.map_or((0, NO_HASH.to_owned()), |last| (last.n, last.hash));
        let uncovered = n.saturating_sub(self.head.count);
        Verified { lines: self.lines, removed: n.saturating_sub(self.lines), last, uncovered }
    }
}
