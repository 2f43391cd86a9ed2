//! One process, read through its folder in `/proc`.

use std::os::fd::{AsRawFd, OwnedFd};

use keybridge_proto::gate::{Parent, Text};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, readlinkat, statat};
use rustix::io::{Errno, Result};

use super::cgroup::Cgroups;

/// More than the kernel writes about a process, unless its cgroups have very long names.
const FILE_LIMIT: usize = 16 * 1024;

/// How much of a command line is read.
const COMMAND_LINE_LIMIT: usize = 4 * 1024;

/// A process. If it ends, nothing more can be read: this never leads to another one with its pid.
#[derive(Debug)]
pub(super) struct Process {
    folder: OwnedFd,
}

/// A namespace, as the kernel identifies it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    device: u64,
    inode: u64,
}

impl Process {
    pub(super) fn open(pid: u32) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: open(format!("/proc/{pid}"), flags, Mode::empty())? })
    }

    pub(super) fn cgroups(&self) -> Result<Cgroups> {
        Ok(Cgroups::parse(&self.read("cgroup", FILE_LIMIT)?))
    }

    pub(super) fn pid_namespace(&self) -> Result<Namespace> {
        let found = statat(&self.folder, "ns/pid", AtFlags::empty())?;
        Ok(Namespace { device: found.st_dev, inode: found.st_ino })
    }

    pub(super) fn executable(&self) -> Result<Text> {
        self.link("exe")
    }

    pub(super) fn working_folder(&self) -> Result<Text> {
        self.link("cwd")
    }

    pub(super) fn command_line(&self) -> Result<Vec<u8>> {
        self.read("cmdline", COMMAND_LINE_LIMIT)
    }

    /// The processes above this one, the nearest first, as many as can be seen and at most `limit`. They
    /// are found by their pids alone, which can be reused at any time.
    pub(super) fn claimed_parents(&self, limit: usize) -> Vec<Parent> {
        let mut parents = Vec::new();
        let mut next = self.parent_pid();
        while parents.len() < limit
            && let Some(pid) = next
            && let Ok(status) = read_file(&format!("/proc/{pid}/status"))
        {
            let name = field(&status, "Name:").unwrap_or_default();
            parents.push(Parent { pid, name: Text::new(name) });
            next = pid_in(&status, "PPid:");
        }
        parents
    }

    /// The process above this one, for certain.
    pub(super) fn parent(&self) -> Option<Self> {
        let pid = self.parent_pid()?;
        let parent = Self::open(pid).ok()?;
        // Otherwise the parent may have ended, and its pid may belong to another process.
        (self.parent_pid() == Some(pid)).then_some(parent)
    }

    fn parent_pid(&self) -> Option<u32> {
        pid_in(&self.read("status", FILE_LIMIT).ok()?, "PPid:")
    }

    fn link(&self, name: &str) -> Result<Text> {
        Ok(Text::new(readlinkat(&self.folder, name, Vec::new())?.as_bytes()))
    }

    /// Reads a file up to a limit.
    fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>> {
        let file = openat(&self.folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        read_up_to(&file, limit)
    }
}

/// The process that a pidfd leads to, as long as there is one.
pub(super) fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    // -1 for a process that is gone.
    pid_in(&read_file(&format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?, "Pid:")
}

fn read_file(path: &str) -> Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_up_to(&file, FILE_LIMIT)
}

fn read_up_to(file: &OwnedFd, limit: usize) -> Result<Vec<u8>> {
    let mut content = vec![0; limit];
    let mut size = 0;
    while let Some(room) = content.get_mut(size..).filter(|room| !room.is_empty()) {
        match rustix::io::read(file, room) {
            Ok(0) => break,
            Ok(count) => size += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(size);
    Ok(content)
}

/// The pid after a name at the beginning of a line.
fn pid_in(text: &[u8], name: &str) -> Option<u32> {
    str::from_utf8(field(text, name)?).ok()?.parse().ok().filter(|&pid| pid != 0)
}

/// The text after a name at the beginning of a line.
fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.find_map(|line| line.strip_prefix(name.as_bytes())).map(<[u8]>::trim_ascii)
}
