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
use std::process::{Child, Command, Stdio};

use lab::{Client, Lab, eventually, signal};
use rustix::process::Signal;

/// So many that a call which isn't made for each of them hardly shows.
const TRIPS: u32 = 300;

/// Six are needed: wait and read from the one side, write to the other, and the same back.
const NEEDED: f64 = 6.0;

/// Of those that write, two carry the request or the answer, and one gives credit for what was read.
const WRITES: f64 = 2.0 + 1.0;

/// The host's program also finds the agent's socket empty after it has read it, gives credit for the
/// request, and may be woken for the credit that it gets for the answer. How often it is depends on
/// whether the next request has come by then.
const HOST: f64 = NEEDED + 1.0 + 1.0 + 2.0;

/// The helper also finds its input empty, gives credit for the answer, and may be woken for the credit
/// that it gets for the request, and again when the client has read.
const HELPER: f64 = NEEDED + 1.0 + 1.0 + 2.0 + 1.0;

/// What isn't part of a round trip: the first turn under strace, a look at the socket's path.
const BESIDE: f64 = 0.1;

#[test]
fn a_small_round_trip_takes_no_more_system_calls_than_it_did() {
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
    for (program, pid, bound) in
        [("keybridge", bridge.host_pid(), HOST), ("keybridge-remote", bridge.helper_pid(), HELPER)]
    {
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
        let child = Command::new("strace")
            .args(["-f", "-c", "-U", "calls,name", "-o"])
            .arg(&table)
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("strace: {error}; scripts/test installs it"));
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

/// The sum of a table.
fn total(table: &str) -> u32 {
    let total = rows(table).find_map(|(count, name)| (name == "total").then_some(count));
    total.unwrap_or_else(|| panic!("strace counted nothing:\n{table}"))
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
