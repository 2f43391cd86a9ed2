//! This process and its user, and the processes that it starts.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::process::CommandExt;

use tokio::process::{Child, Command};

use super::system_calls::{self, StandardStream};

/// Flags of `CreateProcess`.
const DETACHED_PROCESS: u32 = 0x0000_0008;
const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
const CREATE_BREAKAWAY_FROM_JOB: u32 = 0x0100_0000;
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// Has a program open no window of its own, which it would since the background process has no console.
pub(crate) fn hide_window(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW);
}

/// Has a program lead a process group without a window, so that Ctrl-C is for us alone.
pub(crate) fn lead_group(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP);
}

/// Starts a process that goes on without us and our console. If it can, it leaves the job that we are in,
/// which a terminal or an editor ends with itself.
pub(crate) fn spawn_in_background(command: &mut Command) -> io::Result<Child> {
    const DETACHED: u32 = DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP;
    // It gets pipes of its own. With our streams it would keep open what our caller reads to the end.
    system_calls::keep_streams_from_children();
    command.creation_flags(DETACHED | CREATE_BREAKAWAY_FROM_JOB);
    match command.spawn() {
        // The job doesn't let it go.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            command.creation_flags(DETACHED);
            command.spawn()
        }
        spawned => spawned,
    }
}

/// Does nothing: a handle is inherited only if the one who opened it says so.
pub const fn close_inherited() {}

/// Does nothing: a process in the background is started without a console.
pub(crate) const fn leave_terminal() {}

/// Closes standard output, so that a reader sees the end.
pub(crate) fn close_stdout() {
    if let Ok(null) = OpenOptions::new().write(true).open("NUL") {
        let _ = system_calls::replace_stream(StandardStream::Output, null);
    }
}

/// Sends standard error to a file.
pub(crate) fn redirect_stderr(file: &File) -> io::Result<()> {
    system_calls::replace_stream(StandardStream::Error, file.try_clone()?)
}

/// Runs a program with our own streams, and ends with its exit status. Returns only if that fails.
pub(crate) fn replace_process(program: &mut std::process::Command) -> io::Error {
    // A process can't be replaced here. Ctrl-C reaches the program too, which decides.
    system_calls::ignore_ctrl_c();
    program.creation_flags(0);
    match program.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Ends a child.
pub(crate) fn terminate(child: &mut Child) {
    let _ = child.start_kill();
}

/// Ends a child: it has no console from which Ctrl-C could come.
pub(crate) fn interrupt(child: &mut Child) {
    terminate(child);
}

/// Ends a child that leads a group. Those that it has started end by themselves, when their pipes do.
pub(crate) fn terminate_group(leader: &mut Child) {
    terminate(leader);
}

/// Switches error reports off, whose dumps could contain passphrases and nonces.
pub fn forbid_core_dumps() {
    system_calls::forbid_error_reports();
}

/// Does nothing: handles aren't limited.
pub(crate) const fn raise_descriptor_limit(_sessions: usize) {}

/// Nobody is: an administrator is a user like others here.
pub(crate) const fn is_root() -> bool {
    false
}

/// What tells this user from others, in a name. The folders that it is used in belong to one user anyway.
pub(crate) fn user_tag() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

/// The ids of user and group. Cygwin derives its own from Windows', and its sockets don't check them.
pub(crate) const fn ids() -> (u32, u32) {
    (0, 0)
}

/// There is none.
pub(crate) const fn runtime_folder() -> Option<OsString> {
    None
}
