//! The whole chain with clients that sign: a host with a key and its agent, a bridge in the background,
//! and a container.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

use keybridge_lab::within;

use crate::lab::{Client, Engine, Image, Lab, PATIENCE, feed, output, run, signal, text};

use super::Relay;
use super::container::SigningContainer;
use super::judge::{agent_configuration, judge};
use super::processes;
use super::signers::Signers;

/// How many clients sign in a container: enough for several sessions at once, and few for a machine that
/// runs other tests too.
const CLIENTS: usize = 4;

/// How a client is told that the agent can't be reached.
const NO_AGENT: &str = "ERR 67108941 ";

/// What a scene is made of.
#[derive(Default)]
pub struct Plan {
    /// Whether the bridge talks to the engine through a relay.
    pub relay: bool,
    /// An engine other than the one that all tests share.
    pub engine: Option<Engine>,
    /// More options for `docker run`.
    pub options: &'static [&'static str],
}

/// A bridge with clients that sign. Dropping it leaves nothing.
pub struct Scene {
    // Before the lab: what is bridged goes first.
    pub container: SigningContainer,
    relay: Option<Relay>,
    socket: PathBuf,
    own_engine: Option<Mutex<Engine>>,
    pub lab: Lab,
}

impl Scene {
    /// Sets everything up, without a bridge.
    pub fn new(plan: Plan) -> Self {
        let lab = Lab::empty();
        let log = lab.at("agent.log");
        std::fs::write(lab.host.file("gpg-agent.conf"), agent_configuration(&log)).unwrap();
        lab.host.make_key();
        let socket = plan.engine.as_ref().map_or_else(shared_engine, Engine::socket);
        if let Some(engine) = &plan.engine {
            engine.load(Image::Bookworm);
        }
        let signers = Signers::new(lab.at("signers"), CLIENTS);
        Self {
            container: SigningContainer::start(&socket, signers, plan.options),
            relay: plan.relay.then(|| Relay::before(&socket)),
            socket,
            own_engine: plan.engine.map(Mutex::new),
            lab,
        }
    }

    /// Sets everything up; every client has signed.
    pub fn start(plan: Plan) -> Self {
        let scene = Self::new(plan);
        scene.up();
        let start = SystemTime::now();
        scene.container.signers.go();
        scene.await_signatures(start);
        scene
    }

    /// The relay, in a scene that has one.
    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("this scene has a relay")
    }

    /// The engine's socket.
    pub fn engine_socket(&self) -> &Path {
        &self.socket
    }

    /// The engine, in a scene that has one of its own.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.own_engine.as_ref().expect("this scene has an engine").lock().unwrap()
    }

    /// The folder of the scene's bridges.
    pub fn state_folder(&self) -> PathBuf {
        self.lab.at("state")
    }

    /// `keybridge` with a folder of its own for its bridges.
    pub fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        let engine = self.relay.as_ref().map_or(self.engine_socket(), Relay::path);
        command
            .env("KEYBRIDGE_STATE", self.state_folder())
            .env("DOCKER_HOST", format!("unix://{}", engine.display()))
            .args(words);
        command
    }

    /// Bridges the container, which has to work.
    #[track_caller]
    pub fn up(&self) -> String {
        text(&run(&mut self.keybridge(&["up", &self.container.name])))
    }

    /// Every bridge that `status --json` tells of.
    #[track_caller]
    pub fn bridges(&self) -> Vec<Value> {
        let status = run(&mut self.keybridge(&["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"].as_array().unwrap().clone()
    }

    /// The bridge, which has to be there.
    #[track_caller]
    pub fn bridge(&self) -> Value {
        let bridges = self.bridges();
        let [bridge] = bridges.as_slice() else {
            panic!("one bridge is expected, not {bridges:?}\n{}", self.describe());
        };
        bridge.clone()
    }

    /// How often the link was made again.
    #[track_caller]
    pub fn reconnects(&self) -> u64 {
        self.bridge()["reconnects"].as_u64().unwrap()
    }

    /// The process of the bridge.
    #[track_caller]
    pub fn serve_pid(&self) -> u32 {
        self.bridge()["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Waits until something is so. A failure shows what there is to see.
    #[track_caller]
    pub fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(within(PATIENCE, is_so), "waited in vain: {what}\n{}", self.describe());
    }

    /// Waits until the bridge waits, for a reason that it tells.
    #[track_caller]
    pub fn await_waiting(&self) {
        let mut last = Value::Null;
        self.eventually("the bridge waits", || {
            last = self.bridges().first().cloned().unwrap_or_default();
            last["state"] == "waiting"
        });
        let reason = last["reason"].as_str().unwrap_or_default();
        assert!(!reason.is_empty(), "no reason is told: {last}");
    }

    /// Waits until the bridge is ready: clients may sign a moment before it says so.
    #[track_caller]
    pub fn await_ready(&self) {
        self.eventually("the bridge is ready", || self.bridge()["state"] == "ready");
    }

    /// Waits until there is one helper in the container: another one may still be about to end.
    #[track_caller]
    pub fn await_one_helper(&self) {
        let helpers = || processes::helpers(&self.container.id()).len();
        self.eventually("there is one helper", || helpers() == 1);
    }

    /// Waits until there is no bridge, neither in the status nor in a process or a lock.
    #[track_caller]
    pub fn await_gone(&self) {
        self.eventually("the bridge is gone", || {
            self.bridges().is_empty() && processes::of_bridges(&self.state_folder()).is_empty()
        });
        self.assert_locks_are_free();
    }

    /// Waits until every client has a signature that it began after a moment.
    #[track_caller]
    pub fn await_signatures(&self, since: SystemTime) {
        let signers = &self.container.signers;
        self.eventually("every client signs", || signers.have_signed_since(since));
    }

    /// A client that connects now, and says nothing. It speaks for itself: several gpg that are told at once
    /// that no agent runs wait for each other at a lock of theirs.
    #[track_caller]
    pub fn client(&self) -> Client {
        // Root outside is root inside. No name of the container's own making is in the path.
        Client::connect(&self.container.path_from_outside("/root/.gnupg/S.gpg-agent"))
    }

    /// A client is told that no agent runs.
    #[track_caller]
    pub fn assert_a_client_is_told(&self) {
        let greeting = self.client().line();
        let is_told = greeting.starts_with(NO_AGENT) || greeting.is_empty();
        assert!(is_told, "greeted with {greeting:?}\n{}", self.describe());
    }

    /// Has the clients finish, of which none may hang; every signature has to be right.
    #[track_caller]
    pub fn assert_signatures_are_right(&self) {
        let signers = &self.container.signers;
        if self.container.is_running() {
            signers.rest();
        }
        let judgement = judge(&self.lab.host, &self.lab.at("agent.log"), &[signers]);
        let problems = judgement.problems.join("\n");
        assert!(problems.is_empty(), "{problems}\n{}", self.describe());
        println!("{} good signatures, {} told errors", judgement.good, judgement.failed);
    }

    /// Ends the bridge of a container that runs, as a person does; nothing may be left of it.
    #[track_caller]
    pub fn assert_goes_down_clean(&self) {
        run(&mut self.keybridge(&["down", &self.container.name]));
        self.await_gone();
        self.assert_nothing_in_container();
    }

    /// No helper, no socket, no marked line in a container that runs. The record of imported keys stays
    /// with the keys, for `down --purge`.
    #[track_caller]
    pub fn assert_nothing_in_container(&self) {
        self.eventually("no helper is left in the container", || {
            processes::helpers(&self.container.id()).is_empty()
        });
        let script = "ls -A ~/.gnupg | grep -i keybridge | grep -vx .keybridge-imported
                      grep -in keybridge ~/.gnupg/*.conf* ~/.ssh/config 2>/dev/null
                      ls ~/.ssh/agent.sock 2>/dev/null
                      [ ! -S ~/.gnupg/S.gpg-agent ] ||
                      gpg-connect-agent --no-autostart 'GETINFO pid' /bye";
        let left = self.container.sh(script);
        let left = text(&left.stdout);
        // An agent of the container's own answers with its pid.
        assert!(left.is_empty() || left.starts_with("D "), "left in the container: {left}");
    }

    /// No lock of a bridge is held.
    #[track_caller]
    pub fn assert_locks_are_free(&self) {
        let folders = std::fs::read_dir(self.state_folder()).into_iter().flatten().flatten();
        for lock in folders.map(|folder| folder.path().join("lock")).filter(|lock| lock.exists()) {
            let file = std::fs::File::open(&lock).unwrap();
            let taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
            assert!(taken.is_ok(), "{} is held: {taken:?}", lock.display());
        }
    }

    /// What there is to see, for the text of a failure.
    pub fn describe(&self) -> String {
        let said = |words: &[&str]| {
            let ended = output(&mut self.keybridge(words));
            text(&ended.stdout) + &text(&ended.stderr)
        };
        let log = said(&["logs", &self.container.name]);
        let lines: Vec<&str> = log.lines().collect();
        let log = lines[lines.len().saturating_sub(25)..].join("\n");
        let status = said(&["status"]);
        let clients = self.container.signers.last_words();
        format!("--- status\n{status}--- the end of the log\n{log}\n--- clients\n{clients}")
    }

    /// Whether gpg signs in the container now.
    pub fn signs(&self) -> bool {
        let words = ["exec", "-i", &self.container.name, "gpg", "--batch", "--clear-sign"];
        feed(&mut self.container.docker(&words), b"words\n").status.success()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // What a test that failed has left.
        for pid in processes::of_bridges(&self.state_folder()) {
            signal(pid, Signal::KILL);
        }
    }
}

/// The socket of the engine that all tests share.
pub fn shared_engine() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    host.strip_prefix("unix://").expect("an engine of this machine").into()
}
