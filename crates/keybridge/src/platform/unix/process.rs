//! This process, and those that it starts.

use std::fs::{DirEntry, File, OpenOptions, read_dir};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, setsid};
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
