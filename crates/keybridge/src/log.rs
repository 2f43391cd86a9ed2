//! Writes log lines to standard error, or to the log file of a bridge, whose size is bounded.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::platform::{private_file, redirect_stderr};

/// The largest size of a log file. A bridge keeps two: the current and an older one.
const MOST_BYTES: u64 = 512 * 1024;

/// The longest line that is kept whole.
const LONGEST_LINE: usize = 16 * 1024;

/// The log of this process, if it is a bridge.
static LOG: Mutex<Option<KeptLog>> = Mutex::new(None);

/// The log of a bridge.
struct KeptLog {
    file: LogFile,
    /// Whether standard error is a person's, who sees some of it too.
    is_beside_terminal: bool,
}

/// Writes each line to the log file of this process, or to standard error, or both.
#[derive(Debug, Clone, Copy)]
pub struct LogWriter {
    shown: Level,
}

/// Writes one line.
#[derive(Debug, Clone, Copy)]
pub struct LineWriter {
    is_shown: bool,
}

impl LogWriter {
    /// Shows lines up to a level on standard error.
    pub const fn showing(shown: Level) -> Self {
        Self { shown }
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { is_shown: true }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> LineWriter {
        LineWriter { is_shown: *line.level() <= self.shown }
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut has_terminal = true;
        if let Some(log) = LOG.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            log.file.write(line)?;
            has_terminal = log.is_beside_terminal;
        }
        if has_terminal && self.is_shown {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the log and the standard error of this process to a file from now on. A file that exists
/// becomes the older log.
pub(crate) fn begin(path: &Path) -> io::Result<()> {
    keep(LogFile::begin(path, MOST_BYTES, redirect_stderr)?, false);
    Ok(())
}

/// Copies the log of this process to a file from now on, and shows it as before. A file that exists
/// becomes the older log.
pub(crate) fn begin_beside_terminal(path: &Path) -> io::Result<()> {
    keep(LogFile::begin(path, MOST_BYTES, |_| Ok(()))?, true);
    Ok(())
}

fn keep(file: LogFile, is_beside_terminal: bool) {
    let log = KeptLog { file, is_beside_terminal };
    LOG.lock().unwrap_or_else(PoisonError::into_inner).replace(log);
}

/// Opens a log file to append to it. It may be another process's.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    private_file(OpenOptions::new().create(true).append(true)).open(path)
}

/// The path of the older log.
pub(crate) fn older(path: &Path) -> PathBuf {
    path.with_extension("1")
}

/// A log file that becomes the older one when it is full.
struct LogFile {
    path: PathBuf,
    limit: u64,
    file: File,
    /// Called with each new file.
    opened: fn(&File) -> io::Result<()>,
}

impl LogFile {
    fn begin(path: &Path, limit: u64, opened: fn(&File) -> io::Result<()>) -> io::Result<Self> {
        let file = begin_file(path, opened)?;
        Ok(Self { path: path.to_owned(), limit, file, opened })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (line, end) = match line.get(..LONGEST_LINE) {
            Some(beginning) => (beginning, "…\n"),
            None => (line, ""),
        };
        let size = u64::try_from(line.len() + end.len()).unwrap_or(u64::MAX);
        // The file's own size: standard error is written to it as well.
        if self.file.metadata()?.len().saturating_add(size) > self.limit {
            // If there is no new file the line is lost, which is better than a file without bound.
            self.file = begin_file(&self.path, self.opened)?;
        }
        self.file.write_all(line)?;
        self.file.write_all(end.as_bytes())
    }
}

fn begin_file(path: &Path, opened: fn(&File) -> io::Result<()>) -> io::Result<File> {
    match fs::rename(path, older(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = open(path)?;
    opened(&file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin_small(path: &Path) -> LogFile {
        LogFile::begin(path, 1000, |_| Ok(())).unwrap()
    }

    fn size(path: &Path) -> u64 {
        fs::metadata(path).map_or(0, |file| file.len())
    }

    #[test]
    fn however_much_is_written_two_files_are_kept_and_neither_is_larger_than_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = begin_small(&path);
        for number in 0..1000 {
            log.write(format!("line {number}\n").as_bytes()).unwrap();
            assert!(size(&path) <= 1000 && size(&older(&path)) <= 1000, "after {number}");
        }
        let kept = fs::read_to_string(older(&path)).unwrap() + &fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = kept.lines().collect();
        assert!(lines.len() > 100, "{}", lines.len());
        // The last ones, and all of them.
        let first = 1000 - lines.len();
        let expected: Vec<String> = (first..1000).map(|number| format!("line {number}")).collect();
        assert_eq!(lines, expected);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_other_processes_append_counts_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = begin_small(&path);
        open(&path).unwrap().write_all(&[b'x'; 990]).unwrap();
        log.write(b"a line of ours\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a line of ours\n");
        assert_eq!(size(&older(&path)), 990);
    }

    #[test]
    fn a_long_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::begin(&path, 1 << 20, |_| Ok(())).unwrap();
        log.write(&vec![b'x'; 1 << 18]).unwrap();
        assert_eq!(size(&path), u64::try_from(LONGEST_LINE + "…\n".len()).unwrap());
    }
}
