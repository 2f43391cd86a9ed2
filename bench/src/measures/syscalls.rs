//! System calls and sleeps for one small round trip, in each of both programs.

use std::process::Stdio;

use keybridge_lab::{eventually, signal};
use rustix::process::Signal;

use crate::error::{Context, Error, Result};
use crate::figures::{Compared, Measurement, Row, Unit};
use crate::lab::{Lab, SharedClient};
use crate::lane::Lane;
use crate::question::Question;
use crate::subjects::{Bridge, Place, Role};

/// So many that a call which isn't made in each of them hardly shows.
const TRIPS: usize = 500;

/// Counts by strace, which has to be let trace: this is for root, or for a relaxed yama.
pub(super) fn syscalls(
    lab: &Lab,
    place: Place,
    client: &SharedClient,
    bridge: &Bridge,
) -> Result<Measurement> {
    let socket = bridge.socket(Lane::Gpg).ok_or_else(|| Error::new("no gpg lane"))?;
    let name = || "traced".to_owned();
    let ask = |question: Question| client.borrow_mut().ask(&question);
    ask(Question::Open { name: name(), socket, lane: Lane::Gpg })?;
    let round_trips = || ask(Question::RoundTrips { name: name(), count: TRIPS });
    // What is done once is done.
    round_trips()?;
    let mut rows = Vec::new();
    let programs = || ["keybridge", "keybridge-remote"].into_iter().zip(bridge.pids());
    let row = |name: String, count: f64| {
        let rounds = vec![vec![count / TRIPS as f64]];
        Row { name, role: Role::Ours, rounds }
    };
    // Before strace, which changes who waits for whom.
    let before: Vec<f64> = programs().map(|(_, pid)| sleeps(pid)).collect::<Result<_>>()?;
    round_trips()?;
    for ((program, pid), before) in programs().zip(before) {
        rows.push(row(format!("{program}: sleeps"), sleeps(pid)? - before));
    }
    for (program, pid) in programs() {
        let counts = lab.at("strace");
        let mut strace = lab.command("strace");
        strace.args(["-f", "-c", "-U", "calls,name", "-o"]).arg(&counts);
        let mut child = strace
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .while_doing("strace")?;
        eventually("strace is attached", || is_traced(pid));
        let asked = round_trips();
        signal(child.id(), Signal::INT);
        child.wait()?;
        asked?;
        let total = total_of(&std::fs::read_to_string(&counts).while_doing(counts.display())?)?;
        rows.push(row(format!("{program}: system calls"), total));
    }
    ask(Question::Close { name: name() })?;
    Ok(Measurement {
        id: format!("{}.syscalls", place.name()),
        title: format!("{}: system calls and sleeps for a small round trip", place.title()),
        unit: Unit::Calls,
        compared: Compared::Parts,
        rows,
    })
}

/// How often a process has gone to sleep.
fn sleeps(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).while_doing(&path)?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let count = line.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| Error::new(format!("{path} tells no switches")))
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// The sum in strace's table: its last line is `CALLS total`.
fn total_of(table: &str) -> Result<f64> {
    let last = table.lines().rev().find(|line| line.trim_end().ends_with("total"));
    let count = last.and_then(|line| line.split_whitespace().next()?.parse().ok());
    count.ok_or_else(|| Error::new(format!("strace counted nothing:\n{table}")))
}
