//! Processes: run to their end, in time, and signalled.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;

use crate::{PATIENCE, command, eventually, need_root, text};

/// Runs a script as another user, in whose name nothing of this machine is.
pub fn as_user(uid: u32, script: &str) -> Output {
    output(&mut user_command(uid, script))
}

/// What runs a script as another user.
pub fn user_command(uid: u32, script: &str) -> Command {
    need_root();
    let mut command = command("setpriv");
    command
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"])
        .args(["sh", "-c", script])
        .current_dir("/");
    command
}

/// Runs a command to its end, which has to come in time.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    feed(command, b"")
}

/// Runs a command with input to its end while everything else in the test goes on.
pub async fn output_beside(command: Command, input: &[u8]) -> Output {
    let shown = format!("{command:?}");
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let write = async {
        // A program that doesn't read its input says itself what is wrong.
        let _ = stdin.write_all(input).await;
        drop(stdin);
    };
    tokio::join!(write, child.wait_with_output()).1.unwrap()
}

/// Runs a command with input to its end, which has to come in time.
#[track_caller]
pub fn feed(command: &mut Command, input: &[u8]) -> Output {
    let shown = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that doesn't read its input says itself what is wrong.
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let pid = child.id();
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(PATIENCE) else {
        signal(pid, rustix::process::Signal::KILL);
        panic!("{shown} didn't end in time");
    };
    writer.join().unwrap();
    output.unwrap()
}

/// Runs a command that has to succeed, and gives back what it wrote.
#[track_caller]
pub fn run(command: &mut Command) -> Vec<u8> {
    run_with(command, b"")
}

/// Runs a command with input that has to succeed, and gives back what it wrote.
#[track_caller]
pub fn run_with(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let output = feed(command, input);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output.stdout
}

/// Sends a signal to a process that the test has started. One that is stopped or killed does nothing any
/// more when this returns: on a busy machine one that was killed keeps its sockets and locks for a while.
#[track_caller]
pub fn signal(pid: u32, with: Signal) {
    let target = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // One that has ended already is as good.
    let send = || rustix::process::kill_process(target, with).ok();
    send();
    if with == Signal::STOP {
        // Again, in case that something had it go on.
        eventually("the process has stopped", || {
            send();
            is_stopped(pid)
        });
    }
    if with == Signal::KILL {
        eventually("the process has ended", || !is_alive(pid));
    }
}

/// Whether a process is there, and more than its status. Its threads can outlive the first of them,
/// and hold its sockets for as long.
pub fn is_alive(pid: u32) -> bool {
    states(pid).any(|state| state != 'Z')
}

/// Whether every thread of a process has been stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    states(pid).all(|state| state == 'T')
}

/// Whether every thread of a process waits for something.
pub fn is_asleep(pid: u32) -> bool {
    states(pid).all(|state| state == 'S')
}

/// The states of the threads of a process.
fn states(pid: u32) -> impl Iterator<Item = char> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    })
}

/// What a process has allocated, in bytes. Unlike the whole it doesn't depend on how many others share the
/// pages of the program's file, and so on which tests run beside this one.
pub fn allocated_by(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many descriptors a process has open.
pub fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
