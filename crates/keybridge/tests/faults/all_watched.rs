//! `keybridge watch`: many containers, each with a process of its own, as they come and go.
//!
//! The name of this file puts it first, since it takes longest.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{
    BUSY, GPG_QUEUE, RECOVERY, Signers, SigningContainer, agent_configuration, in_time, judge,
    processes, shared_engine,
};
use crate::lab::{Lab, allocated_by, eventually, output, run, signal, text};

const CONTAINERS: usize = 20;

/// For how long they come and go.
const TIME: Duration = Duration::from_mins(2);

/// Between two of them: an engine on a machine with two processors needs most of it.
const PAUSE: Duration = Duration::from_secs(1);

/// How long each client rests: there are twenty, beside those of other tests.
const CLIENT_PAUSE: Duration = Duration::from_secs(2);

/// What an attempt may take: nobody waits for more than a loss to be noticed.
const LONGEST: Duration = Duration::from_secs(8).saturating_add(GPG_QUEUE);

/// Room of the allocator of one process that has worked: what is kept for later, and never grows.
const ROOM: u64 = 1024 * 1024;

/// The process that watches, and one for each container.
const PROCESSES: u64 = 1 + CONTAINERS as u64;

/// Containers with a label, and a process that watches for it.
struct Crowd {
    containers: Vec<SigningContainer>,
    watch: Child,
    label: String,
    lab: Lab,
}

/// What the process that watches holds, and those that it has started.
#[derive(Debug, Clone, Copy)]
struct Held {
    allocated: u64,
    descriptors: usize,
    threads: usize,
}

impl Crowd {
    /// A process that watches, and nothing to be seen yet.
    fn new() -> Self {
        let lab = Lab::empty();
        let log = agent_configuration(&lab.at("agent.log"));
        std::fs::write(lab.host.file("gpg-agent.conf"), log).unwrap();
        lab.host.make_key();
        // Its own, since the engine has the containers of other tests too.
        let label = format!("kbt-{}=on", uuid::Uuid::new_v4().simple());
        let said = File::create(lab.at("watch.log")).unwrap();
        let mut watch = keybridge(&lab, &["watch", "--label", &label]);
        watch.stdout(said.try_clone().unwrap()).stderr(said);
        let watch = watch.spawn().unwrap();
        Self { containers: Vec::new(), watch, label, lab }
    }

    /// Starts containers, and has their clients sign once they are bridged.
    fn start(&mut self, count: usize) {
        let start = |number: usize| {
            let folder = self.lab.at(&format!("signers-{number}"));
            let signers = Signers::new(folder, 1).pausing(CLIENT_PAUSE);
            SigningContainer::start(&shared_engine(), signers, &["--label", &self.label])
        };
        // Some at once: an engine waits more than it works.
        let numbers: Vec<usize> = (0..count).collect();
        let containers = std::thread::scope(|scope| {
            let some = numbers.chunks(5).map(|some| {
                scope.spawn(|| some.iter().map(|&number| start(number)).collect::<Vec<_>>())
            });
            let some: Vec<_> = some.collect();
            some.into_iter().flat_map(|some| some.join().unwrap()).collect()
        });
        self.containers = containers;
        self.await_ready(self.containers.len());
        for container in &self.containers {
            container.signers.go();
        }
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        keybridge(&self.lab, words)
    }

    fn bridges(&self) -> Vec<Value> {
        let status = run(&mut self.keybridge(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"].as_array().unwrap().clone()
    }

    /// The processes of the bridges.
    fn pids(&self) -> BTreeSet<u32> {
        let pid = |bridge: &Value| u32::try_from(bridge["pid"].as_u64().unwrap()).unwrap();
        self.bridges().iter().map(pid).collect()
    }

    /// Has the engine do something to all containers at once.
    fn tell_all(&self, verb: &str) {
        let mut docker = self.containers[0].docker(&[verb]);
        run(docker.args(self.containers.iter().map(|container| container.id())));
    }

    /// Waits until so many bridges are ready, and no others are told of.
    #[track_caller]
    fn await_ready(&self, count: usize) {
        let time = recovery_of(count);
        let are_ready = || {
            let bridges = self.bridges();
            bridges.len() == count && bridges.iter().all(|bridge| bridge["state"] == "ready")
        };
        assert!(in_time(time, are_ready), "{count} are not ready\n{}", self.describe());
    }

    /// Every client has to sign soon after a moment.
    #[track_caller]
    fn assert_all_sign(&self, since: SystemTime) {
        let silent = || {
            let containers = self.containers.iter();
            let is_silent = |container: &&SigningContainer| {
                container.signers.first_success_since(since).contains(&None)
            };
            containers.filter(is_silent).collect::<Vec<_>>()
        };
        if !in_time(recovery_of(self.containers.len()), || silent().is_empty()) {
            let words = silent().into_iter().map(|container| {
                let name = &container.name;
                let log = text(&output(&mut self.keybridge(&["logs", name])).stdout);
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                let end: Vec<&str> = end.into_iter().rev().collect();
                format!("{name}:\n{}\n{}", container.signers.last_words(), end.join("\n"))
            });
            let words: Vec<String> = words.collect();
            panic!("these don't sign:\n{}\n{}", words.join("\n"), self.describe());
        }
    }

    /// What the processes hold when every container is bridged and nobody signs.
    fn held_at_rest(&self) -> Held {
        for container in &self.containers {
            container.signers.rest();
        }
        self.held()
    }

    /// What the processes hold when no session is open.
    fn held(&self) -> Held {
        let open = |bridge: &Value| bridge["lanes"]["gpg"]["open"].as_u64().unwrap_or(0);
        eventually("no session is open", || self.bridges().iter().all(|one| open(one) == 0));
        let pids: Vec<u32> = self.pids().into_iter().chain([self.watch.id()]).collect();
        let count = |what| {
            let of_one = |pid| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
            pids.iter().map(of_one).sum()
        };
        let allocated = pids.iter().map(|&pid| allocated_by(pid)).sum();
        Held { allocated, descriptors: count("fd"), threads: count("task") }
    }

    fn describe(&self) -> String {
        let status = text(&output(&mut self.keybridge(&["status"])).stdout);
        let said = std::fs::read_to_string(self.lab.at("watch.log")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let said = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("--- status\n{status}--- what watch said last\n{said}")
    }

    /// Ends the process as a service manager does; it has to end well and leave nothing.
    fn end(mut self) {
        for container in &self.containers {
            container.signers.rest();
        }
        signal(self.watch.id(), Signal::TERM);
        let mut status = None;
        eventually("watch has ended", || {
            status = self.watch.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}\n{}", self.describe());
        assert_eq!(self.bridges(), Vec::<Value>::new());
        for container in &self.containers {
            eventually("its helper has ended", || processes::helpers(&container.id()).is_empty());
            let left = container.sh("grep -i keybridge ~/.gnupg/*.conf; ls ~/.gnupg/S.gpg-agent");
            assert_eq!(text(&left.stdout), "", "left in {}", container.name);
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
        // All at once; each by itself takes as long as all.
        if let Some(first) = self.containers.first() {
            let mut docker = first.docker(&["rm", "-f", "-v"]);
            let _ = docker.args(self.containers.iter().map(|one| &one.name)).output();
        }
    }
}

/// How long it may take until so many containers are bridged that come at once. Starting one takes an engine
/// half a second and more, one after the other.
fn recovery_of(count: usize) -> Duration {
    (RECOVERY + Duration::from_secs(1) * u32::try_from(count).unwrap()) * BUSY
}

fn state(lab: &Lab) -> PathBuf {
    lab.at("state")
}

fn keybridge(lab: &Lab, words: &[&str]) -> Command {
    let mut command = lab.keybridge();
    command
        .env("KEYBRIDGE_STATE", state(lab))
        .env("DOCKER_HOST", format!("unix://{}", shared_engine().display()))
        .stdin(Stdio::null())
        .args(words);
    command
}

/// Numbers that come again for the same seed.
struct Chance(u64);

impl Chance {
    /// From `KEYBRIDGE_TEST_SEED`, or another one each time.
    fn new() -> Self {
        let said = std::env::var("KEYBRIDGE_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let seed = said.unwrap_or_else(now);
        println!("KEYBRIDGE_TEST_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// Starts a container that doesn't run, and stops one that does, in one way or another.
fn come_or_go(container: &SigningContainer, chance: &mut Chance) {
    if !container.is_running() {
        return container.tell("start");
    }
    match chance.below(3) {
        0 => container.tell("kill"),
        1 => container.tell_with("stop", &["--time", "2"]),
        _ => container.tell_with("restart", &["--time", "2"]),
    }
}

#[test]
fn twenty_containers_come_and_go_for_two_minutes() {
    let mut crowd = Crowd::new();
    crowd.start(CONTAINERS);
    crowd.assert_all_sign(SystemTime::now());
    let pids = crowd.pids();
    assert_eq!(pids.len(), CONTAINERS, "one process for each");
    // Once each before it counts: what is made at the first return is there.
    crowd.tell_all("restart");
    crowd.assert_all_sign(SystemTime::now());
    let before = crowd.held_at_rest();

    let mut chance = Chance::new();
    for container in &crowd.containers {
        container.signers.go();
    }
    let start = Instant::now();
    let mut times = 0;
    while start.elapsed() < TIME {
        come_or_go(&crowd.containers[chance.below(CONTAINERS)], &mut chance);
        times += 1;
        let ended = crowd.watch.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?} after {times} turns\n{}", crowd.describe());
        std::thread::sleep(PAUSE);
    }
    crowd.tell_all("start");
    crowd.assert_all_sign(SystemTime::now());
    crowd.await_ready(CONTAINERS);

    let mut after = crowd.held_at_rest();
    // Those who have just asked for the status may still be connected.
    let is_closed = || {
        after = crowd.held();
        after.descriptors <= before.descriptors + 2
    };
    in_time(RECOVERY * BUSY, is_closed);
    let signers: Vec<&Signers> = crowd.containers.iter().map(|one| &one.signers).collect();
    let judgement = judge(&crowd.lab.host, &crowd.lab.at("agent.log"), &signers);
    let (good, failed) = (judgement.good, judgement.failed);
    println!("{times} turns, {good} good signatures, {failed} told errors");
    println!("before: {before:?}, after: {after:?}");
    assert!(judgement.problems.is_empty(), "{}", judgement.problems.join("\n"));
    let turns = signers.iter().flat_map(|signers| signers.turns());
    let slow: Vec<_> = turns.filter(|turn| turn.time() > LONGEST * BUSY).collect();
    assert!(slow.is_empty(), "clients that hang: {slow:?}");
    assert_eq!(crowd.pids(), pids, "the same processes");
    assert!(after.allocated < before.allocated + before.allocated / 4 + ROOM * PROCESSES, "memory");
    assert!(after.descriptors <= before.descriptors + 2, "descriptors");
    assert!(after.threads <= before.threads + CONTAINERS, "threads");
    crowd.end();
}

#[test]
fn a_container_that_was_put_down_is_bridged_when_it_starts_again() {
    let mut crowd = Crowd::new();
    crowd.start(2);
    let [first, second] = crowd.containers.as_slice() else { panic!("two containers") };
    run(&mut crowd.keybridge(&["down", &first.name]));
    crowd.await_ready(1);
    eventually("its helper has ended", || processes::helpers(&first.id()).is_empty());
    let log = text(&run(&mut crowd.keybridge(&["logs", &second.name])));
    assert!(log.contains("ready"), "{log}");
    // It is not picked up by itself: an event of another container is no reason.
    second.tell_with("restart", &["--time", "2"]);
    crowd.await_ready(1);
    assert!(processes::helpers(&first.id()).is_empty(), "{}", crowd.describe());
    first.tell_with("restart", &["--time", "2"]);
    let returned = SystemTime::now();
    crowd.await_ready(2);
    crowd.assert_all_sign(returned);
    // One that is gone is told of no more.
    second.tell_with("rm", &["--force"]);
    crowd.await_ready(1);
    second.make();
    crowd.await_ready(2);
    crowd.end();
}

#[test]
fn a_container_that_is_bridged_already_is_left_to_its_bridge() {
    let mut crowd = Crowd::new();
    crowd.start(1);
    let container = &crowd.containers[0];
    let shown = text(&run(&mut crowd.keybridge(&["up", &container.name])));
    assert!(shown.contains("is bridged already"), "{shown}");
    assert_eq!(crowd.bridges().len(), 1);
    assert_eq!(processes::helpers(&container.id()).len(), 1);
    crowd.end();
}
