//! What a small round trip costs each program, in system calls: unlike time, they can be counted on a
//! busy machine.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

mod lab;

use std::fs;
use std::process::{Child, Stdio};

use lab::{Client, Lab, eventually, signal};
use rustix::process::Signal;

/// So many that a call which isn't made for each of them hardly shows.
const TRIPS: u32 = 300;

/// Wait and read from the one side, write to the other, and the same back. No more are needed: a read
/// that empties a socket is not followed by one that finds it empty, nobody is woken for room to write,
/// and credit for so little is not worth a frame.
const NEEDED: f64 = 6.0;

/// gpg-agent writes an answer and the end of its line one after the other: the host's program can meet each
/// by itself, and waits and reads once more then.
const BY_HALVES: f64 = 2.0;

/// Of those, two carry the request and the answer.
const WRITES: f64 = 2.0;

/// What isn't part of a round trip: the first turn under strace, a look at the socket's path, and on a busy
/// machine a wait that brings nothing.
const BESIDE: f64 = 0.3;

#[test]
fn a_small_round_trip_takes_no_more_system_calls_than_a_relay_needs() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let mut client = Client::greeted(&bridge.socket());
    let mut nops = || {
        for _ in 0..TRIPS {
            assert_eq!(client.ask("NOP"), "OK\n");
        }
    };
    // What is done once is done.
    nops();
    for (program, pid, bound) in [
        ("keybridge", bridge.host_pid(), NEEDED + BY_HALVES),
        ("keybridge-remote", bridge.helper_pid(), NEEDED),
    ] {
        let strace = Strace::attach(&lab, pid);
        nops();
        let table = strace.counts();
        let each = |total: u32| f64::from(total) / f64::from(TRIPS);
        let (calls, writes) = (each(total(&table)), each(writes(&table)));
        assert!(calls >= NEEDED - BESIDE, "{program}: {calls} calls can't be all:\n{table}");
        assert!(
            calls <= bound + BESIDE,
            "{program}: {calls} system calls for a small round trip, {bound} were enough:\n{table}"
        );
        assert!(
            writes <= WRITES + BESIDE,
            "{program}: {writes} writes for a small round trip, {WRITES} were enough:\n{table}"
        );
    }
    drop(client);
    bridge.stop();
}

/// strace that counts the calls of a process.
struct Strace {
    child: Child,
    table: std::path::PathBuf,
}

impl Strace {
    fn attach(lab: &Lab, pid: u32) -> Self {
        let table = lab.at("strace");
        let child = keybridge_lab::command("strace")
            .args(["-f", "-c", "-U", "calls,name", "-o"])
            .arg(&table)
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("strace is attached", || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            status.lines().any(|line| {
                line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0")
            })
        });
        Self { child, table }
    }

    /// Lets go of the process, and gives back the table of calls.
    fn counts(mut self) -> String {
        signal(self.child.id(), Signal::INT);
        self.child.wait().unwrap();
        fs::read_to_string(&self.table).unwrap()
    }
}

impl Drop for Strace {
    /// In a test that fails, it would keep the process and the output of the tests.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of a table.
fn total(table: &str) -> u32 {
    // A table without calls has no rows.
    rows(table).find_map(|(count, name)| (name == "total").then_some(count)).unwrap_or(0)
}

/// The calls of a table that write.
fn writes(table: &str) -> u32 {
    let writes = ["write", "writev", "sendto", "sendmsg"];
    rows(table).filter(|(_, name)| writes.contains(name)).map(|(count, _)| count).sum()
}

/// The rows of a table: `CALLS NAME`.
fn rows(table: &str) -> impl Iterator<Item = (u32, &str)> {
    table.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(' ')?;
        Some((count.parse().ok()?, name.trim()))
    })
}
