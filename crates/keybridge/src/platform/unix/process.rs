//! This process, its limits and its user, and the processes that it starts.

use std::ffi::OsString;
use std::fs::{DirEntry, File, OpenOptions, read_dir};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, geteuid, getgid, getrlimit, getuid, kill_process,
    kill_process_group, setrlimit, setsid,
};
use tokio::process::{Child, Command};

/// Does nothing: programs open no window of their own.
pub(crate) const fn hide_window(_: &mut Command) {}

/// Has a program lead a process group, so that Ctrl-C is for us alone and the group can be ended.
pub(crate) fn lead_group(command: &mut Command) {
    command.process_group(0);
}

/// Starts a process that goes on without us. It calls [`leave_terminal`].
pub(crate) fn spawn_in_background(command: &mut Command) -> io::Result<Child> {
    command.spawn()
}

/// Closes what this process inherited beside its standard streams: it would keep open, for as long as we run,
/// what our starter's starter waits for, and everything that we start would have it too. To be called
/// before anything is opened.
pub fn close_inherited() {
    let Some(folder) = ["/proc/self/fd", "/dev/fd"].iter().find_map(|list| read_dir(list).ok())
    else {
        return;
    };
    let name = |entry: io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let inherited: Vec<RawFd> = folder.filter_map(name).filter(|&number| number > 2).collect();
    for number in inherited {
        // That of the list itself is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Leaves the terminal of the process that started this one: Ctrl-C there must not reach us.
pub(crate) fn leave_terminal() {
    // It fails if we lead a session already.
    let _ = setsid();
}

/// Closes standard output, so that a reader sees the end.
pub(crate) fn close_stdout() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Sends standard error to a file.
pub(crate) fn redirect_stderr(file: &File) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(file)?)
}

/// Replaces this process, so that signals, the terminal and the exit status are the program's. Returns
/// only if that fails.
pub(crate) fn replace_process(program: &mut std::process::Command) -> io::Error {
    program.exec()
}

/// Asks a child to end.
pub(crate) fn terminate(child: &mut Child) {
    if let Some(pid) = pid(child) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Does to a child what Ctrl-C does.
pub(crate) fn interrupt(child: &mut Child) {
    if let Some(pid) = pid(child) {
        let _ = kill_process(pid, Signal::INT);
    }
}

/// Asks a child that leads a group to end, and those that it has started.
pub(crate) fn terminate_group(leader: &mut Child) {
    if let Some(pid) = pid(leader) {
        let _ = kill_process_group(pid, Signal::TERM);
    }
}

/// None if it has ended.
fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
}

/// Descriptors for everything but sessions: the link, the log, the control socket and its clients, the
/// engine, programs that are run.
const BASE_DESCRIPTORS: u64 = 256;

/// Descriptors of a session: the agent's connection, and another one while it is dialled or its buffer is full.
const SESSION_DESCRIPTORS: u64 = 2;

/// Switches core dumps off: they could contain passphrases and nonces. Programs that are started from
/// here can raise the limit again. On Linux no other process of the user can read our memory either, as with
/// gpg-agent and ssh-agent.
pub fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "can't close this process to debuggers");
    }
    let limit = getrlimit(Resource::Core);
    // One byte is too little for a file. Zero would not keep Linux from piping a dump to a program.
    let current = limit.maximum.map_or(1, |maximum| maximum.min(1));
    let limit = Rlimit { current: Some(current), ..limit };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::warn!(%error, "can't switch core dumps off");
    }
}

/// Raises the limit of file descriptors to what these sessions need. No further: some programs that are
/// started from here try every possible descriptor.
pub(crate) fn raise_descriptor_limit(sessions: usize) {
    let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
    let needed = sessions.saturating_mul(SESSION_DESCRIPTORS).saturating_add(BASE_DESCRIPTORS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let possible = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum });
    if raised.is_err() || possible < needed {
        tracing::warn!(
            "{sessions} sessions need {needed} file descriptors, but only {} are allowed (see ulimit -Hn)",
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
        );
    }
}

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// What tells this user from others, in a name.
pub(crate) fn user_tag() -> String {
    geteuid().as_raw().to_string()
}

/// The ids of user and group.
pub(crate) fn ids() -> (u32, u32) {
    (getuid().as_raw(), getgid().as_raw())
}

/// Where the sockets of this user's services are, if no variable says so.
#[expect(clippy::unnecessary_wraps, reason = "as on other systems")]
pub(crate) fn runtime_folder() -> Option<OsString> {
    Some(format!("/run/user/{}", user_tag()).into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn no_other_process_of_the_user_reads_our_memory() {
        forbid_core_dumps();
        assert_eq!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
