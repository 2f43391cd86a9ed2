//! The process that has the lock of a file, so that it can be ended.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The process that has a lock. Signals reach this process or none, also when its pid is used again.
pub(crate) struct LockHolder(OwnedFd);

impl LockHolder {
    /// Finds the process that the file notes. `None` if the kernel doesn't say that it has the lock.
    pub(crate) fn find(lock: &Path) -> io::Result<Option<Self>> {
        let noted = fs::read_to_string(lock)?;
        let Some(pid) = noted.trim().parse().ok().and_then(Pid::from_raw) else { return Ok(None) };
        // Opened before the check, which then holds for the descriptor.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            process => process?,
        };
        let inode = fs::metadata(lock)?.ino();
        let locks = fs::read_to_string("/proc/locks")?;
        let has_lock = locks.lines().any(|line| is_lock(line, pid, inode));
        Ok(has_lock.then_some(Self(process)))
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// Whether a line says that this process has the lock of this file: `1: FLOCK ADVISORY WRITE 17 fe:00:42 0
/// EOF`. The device isn't compared: some filesystems show another one to `stat`.
fn is_lock(line: &str, pid: Pid, inode: u64) -> bool {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", holder, file, ..] = words.as_slice() else { return false };
    let is_file = file.rsplit(':').next().is_some_and(|number| number == inode.to_string());
    is_file && *holder == pid.as_raw_nonzero().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_has_the_lock_is_found() {
        let pid = Pid::from_raw(17).unwrap();
        let has_lock = |line| is_lock(line, pid, 42);
        assert!(has_lock("1: FLOCK  ADVISORY  WRITE 17 fe:00:42 0 EOF"));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 17 fe:00:42 0 EOF",
            "1: FLOCK  ADVISORY  READ 17 fe:00:42 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 1 fe:00:42 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 17 fe:00:142 0 EOF",
            "1: POSIX  ADVISORY  WRITE 17 fe:00:42 0 EOF",
            "",
        ] {
            assert!(!has_lock(other), "{other}");
        }
    }
}
