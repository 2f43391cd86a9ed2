//! The whole chain with clients that sign: a host with a key and its agent, a bridge in the background,
//! and a container.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;

use crate::lab::{
    Client, Engine, Image, Lab, eventually, feed, is_alive, output, run, signal, text,
};

use super::container::SigningContainer;
use super::judge::{Judgement, agent_configuration, judge};
use super::processes;
use super::signers::Signers;
use super::{Relay, in_time};

/// Within this time of a part's return everything works again.
pub const RECOVERY: Duration = Duration::from_secs(5);

/// How many times as long things may take on a busy machine as on an idle one. The only allowance that
/// the tests of faults make.
pub const BUSY: u32 = 3;

/// How many clients sign in a container.
pub const CLIENTS: usize = 10;

/// What an attempt may take beside the time for which nobody can tell: several gpg that fail at once wait
/// for each other at a lock of theirs, longer each time, up to 8 s.
pub const GPG_QUEUE: Duration = Duration::from_secs(8);

/// Has all bytes go through the engine.
const NO_DIRECT: &str = "KEYBRIDGE_NO_DIRECT";

/// How a client is told that the agent can't be reached.
const NO_AGENT: &str = "ERR 67108941 ";

/// What a scene is made of.
#[derive(Default)]
pub struct Plan {
    /// Whether the bridge talks to the engine through a relay.
    pub relay: bool,
    /// How many seconds the helper outlives its link, if not the usual time.
    pub outlive: Option<u32>,
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
    outlive: Option<u32>,
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
            outlive: plan.outlive,
            lab,
        }
    }

    /// Sets everything up; every client has signed.
    pub fn start(plan: Plan) -> Self {
        let scene = Self::new(plan);
        scene.up();
        let start = SystemTime::now();
        scene.container.signers.go();
        scene.assert_recovers(start, "the first signatures");
        scene
    }

    /// The relay, in a scene that has one.
    pub fn relay(&self) -> &Relay {
        self.relay.as_ref().expect("this scene has a relay")
    }

    /// Whether the bytes go past the engine: not if they are to go through a relay on the way there, nor
    /// if the tests are told so. Whoever carries the engine's streams is not missed then.
    pub fn goes_direct(&self) -> bool {
        self.relay.is_none() && std::env::var_os(NO_DIRECT).is_none_or(|value| value != "true")
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
        if !self.goes_direct() {
            command.env(NO_DIRECT, "true");
        }
        if let Some(seconds) = self.outlive {
            command.env("KEYBRIDGE_OUTLIVE", seconds.to_string());
        }
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

    /// Waits until the bridge has a state for a reason that it tells; gives back the reason.
    #[track_caller]
    pub fn await_state(&self, state: &str, within: Duration) -> String {
        let mut last = Value::Null;
        let is_so = || {
            last = self.bridges().first().cloned().unwrap_or_default();
            last["state"] == state
        };
        if !in_time(within * BUSY, is_so) {
            let late = format!("not {state} within {within:?} but {last}");
            panic!("{late}\n{}", self.describe());
        }
        let reason = last["reason"].as_str().unwrap_or_default().to_owned();
        assert!(!reason.is_empty(), "no reason is told: {last}");
        reason
    }

    /// Waits until the bridge is ready: clients may sign a moment before it says so.
    #[track_caller]
    pub fn await_ready(&self) {
        let is_ready = || self.bridge()["state"] == "ready";
        assert!(in_time(RECOVERY * BUSY, is_ready), "not ready\n{}", self.describe());
    }

    /// Waits until there is one helper in the container: another one may still be about to end.
    #[track_caller]
    pub fn await_one_helper(&self) {
        let helpers = || processes::helpers(&self.container.id()).len();
        assert!(in_time(RECOVERY * BUSY, || helpers() == 1), "{} helpers run", helpers());
    }

    /// Waits until there is no bridge, neither in the status nor in a process or a lock.
    #[track_caller]
    pub fn await_gone(&self, within: Duration) {
        let gone =
            || self.bridges().is_empty() && processes::of_bridges(&self.state_folder()).is_empty();
        assert!(in_time(within * BUSY, gone), "the bridge goes on\n{}", self.describe());
        self.assert_locks_are_free();
    }

    /// Every client has to sign within the time of recovery after a moment.
    #[track_caller]
    pub fn assert_recovers(&self, since: SystemTime, after: &str) {
        let signers = &self.container.signers;
        let left = (since + RECOVERY * BUSY).duration_since(SystemTime::now()).unwrap_or_default();
        let all = || signers.first_success_since(since).iter().all(Option::is_some);
        let recovered = in_time(left, all);
        let times = signers.first_success_since(since);
        let slowest = times.iter().flatten().max().copied().unwrap_or_default();
        let count = times.iter().flatten().count();
        if !recovered || slowest > RECOVERY * BUSY {
            let late = format!("after {after}: {count} of {} clients sign again", times.len());
            panic!(
                "{late} within {:?}, the slowest after {slowest:?}\n{}",
                RECOVERY * BUSY,
                self.describe()
            );
        }
        println!("after {after}: every client signs, the slowest after {slowest:?}");
    }

    /// A client that says nothing until it is greeted is told that no agent runs, within a time. It
    /// speaks for itself: several gpg that are told so at once wait for each other at a lock of theirs.
    #[track_caller]
    pub fn assert_a_client_is_told(&self, within: Duration) {
        let start = Instant::now();
        // Root outside is root inside. No name of the container's own making is in the path.
        let socket = self.container.path_from_outside("/root/.gnupg/S.gpg-agent");
        let greeting = Client::connect(&socket).line();
        let time = start.elapsed();
        let is_told = greeting.starts_with(NO_AGENT) || greeting.is_empty();
        assert!(is_told, "greeted with {greeting:?} after {time:?}\n{}", self.describe());
        assert!(time < within * BUSY, "told after {time:?}\n{}", self.describe());
        println!("a client is told after {time:?}");
    }

    /// Has the clients finish; every signature has to be right, and no attempt may be longer than
    /// for `longest` kept waiting.
    #[track_caller]
    pub fn assert_signatures_are_right(&self, longest: Duration) -> Judgement {
        let signers = &self.container.signers;
        if self.container.is_running() {
            signers.rest();
        }
        let judgement = judge(&self.lab.host, &self.lab.at("agent.log"), &[signers]);
        let problems = judgement.problems.join("\n");
        assert!(problems.is_empty(), "{problems}\n{}", self.describe());
        let longest = (longest + GPG_QUEUE) * BUSY;
        let slow = signers.turns().into_iter().filter(|turn| turn.time() > longest);
        let slow: Vec<_> = slow.collect();
        assert!(slow.is_empty(), "clients that hang, over {longest:?}: {slow:?}");
        judgement
    }

    /// Ends the bridge of a container that runs, as a person does; nothing may be left of it.
    #[track_caller]
    pub fn assert_goes_down_clean(&self) {
        run(&mut self.keybridge(&["down", &self.container.name]));
        self.await_gone(RECOVERY);
        self.assert_nothing_in_container();
    }

    /// No helper, no socket, no marked line in a container that runs. The record of imported keys stays
    /// with the keys, for `down --purge`.
    #[track_caller]
    pub fn assert_nothing_in_container(&self) {
        eventually("no helper is left in the container", || {
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
            let _ = in_time(Duration::from_secs(5), || !is_alive(pid));
        }
    }
}

/// The socket of the engine that all tests share.
pub fn shared_engine() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    host.strip_prefix("unix://").expect("an engine of this machine").into()
}
