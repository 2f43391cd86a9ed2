//! `keybridge watch`: several containers, each with a process of its own, as they come and go.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use keybridge_lab::within;
use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{
    Signers, SigningContainer, agent_configuration, judge, processes, shared_engine,
};
use crate::lab::{Lab, PATIENCE, allocated_by, eventually, output, run, signal, text};

const CONTAINERS: usize = 5;

/// Each way in which one of them goes, for each of them.
const ROUNDS: usize = 3;

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
            let signers = Signers::new(self.lab.at(&format!("signers-{number}")), 1);
            SigningContainer::start(&shared_engine(), signers, &["--label", &self.label])
        };
        self.containers = (0..count).map(start).collect();
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

    /// Waits until something is so. A failure shows what there is to see.
    #[track_caller]
    fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(within(PATIENCE, is_so), "waited in vain: {what}\n{}", self.describe());
    }

    /// Waits until so many bridges are ready, and no others are told of.
    #[track_caller]
    fn await_ready(&self, count: usize) {
        self.eventually(&format!("{count} are ready"), || {
            let bridges = self.bridges();
            bridges.len() == count && bridges.iter().all(|bridge| bridge["state"] == "ready")
        });
    }

    /// Waits until every client has a signature that it began after a moment.
    #[track_caller]
    fn await_signatures(&self, since: SystemTime) {
        for SigningContainer { name, signers, .. } in &self.containers {
            self.eventually(&format!("the client of {name} signs"), || {
                signers.have_signed_since(since)
            });
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
        let words = |one: &SigningContainer| format!("{}: {}", one.name, one.signers.last_words());
        let clients: Vec<String> = self.containers.iter().map(words).collect();
        let clients = clients.join("\n");
        format!("--- status\n{status}--- what watch said last\n{said}\n--- clients\n{clients}")
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

/// Has a container go, in one way or another, and gives no time to those who watch.
fn goes(container: &SigningContainer, way: usize) {
    match way % ROUNDS {
        0 => container.tell("kill"),
        1 => container.tell_with("stop", &["--time", "2"]),
        _ => container.tell_with("restart", &["--time", "2"]),
    }
}

#[test]
fn containers_that_come_and_go_keep_their_processes_which_do_not_grow() {
    let mut crowd = Crowd::new();
    crowd.start(CONTAINERS);
    crowd.await_signatures(SystemTime::now());
    let pids = crowd.pids();
    assert_eq!(pids.len(), CONTAINERS, "one process for each");
    // Once each before it counts: what is made at the first return is there.
    crowd.tell_all("restart");
    crowd.await_signatures(SystemTime::now());
    let before = crowd.held_at_rest();

    for container in &crowd.containers {
        container.signers.go();
    }
    for round in 0..ROUNDS {
        for (number, container) in crowd.containers.iter().enumerate() {
            goes(container, number + round);
        }
        crowd.tell_all("start");
        crowd.await_signatures(SystemTime::now());
        let ended = crowd.watch.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?} in round {round}\n{}", crowd.describe());
    }
    crowd.await_ready(CONTAINERS);

    let mut after = crowd.held_at_rest();
    // Those who have just asked for the status may still be connected.
    crowd.eventually("descriptors are closed", || {
        after = crowd.held();
        after.descriptors <= before.descriptors + 2
    });
    println!("before: {before:?}, after: {after:?}");
    let signers: Vec<&Signers> = crowd.containers.iter().map(|one| &one.signers).collect();
    let judgement = judge(&crowd.lab.host, &crowd.lab.at("agent.log"), &signers);
    println!("{} good signatures, {} told errors", judgement.good, judgement.failed);
    assert!(judgement.problems.is_empty(), "{}", judgement.problems.join("\n"));
    assert_eq!(crowd.pids(), pids, "the same processes");
    assert!(after.allocated < before.allocated + before.allocated / 4 + ROOM * PROCESSES, "memory");
    assert!(after.threads <= before.threads + CONTAINERS, "threads");
    crowd.end();
}

#[test]
fn a_container_that_was_put_down_is_bridged_when_it_starts_again() {
    let mut crowd = Crowd::new();
    crowd.start(2);
    let [first, second] = crowd.containers.as_slice() else { panic!("two containers") };
    let shown = text(&run(&mut crowd.keybridge(&["up", &second.name])));
    assert!(shown.contains("is bridged already"), "{shown}");
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
    crowd.await_signatures(returned);
    // One that is gone is told of no more.
    second.tell_with("rm", &["--force"]);
    crowd.await_ready(1);
    second.make();
    crowd.await_ready(2);
    crowd.end();
}
