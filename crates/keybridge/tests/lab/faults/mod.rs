//! Faults as a tool: what can be done to each part of the chain, while clients sign.
//!
//! A [`Scene`] is the whole chain with clients that sign all the time. A [`Fault`] harms one part of it:
//! [`Fault::strike`] does the harm, and [`Struck::lift`] brings the part back, where it doesn't come back
//! by itself, and tells when. [`Scene::await_signatures`] waits until every client has signed since, and
//! [`Scene::assert_signatures_are_right`] looks at every signature. A new fault is a new variant here.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::must_use_candidate,
    reason = "not every part is used by every test"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod container;
mod judge;
pub mod processes;
mod scene;
mod signers;

pub use container::SigningContainer;
pub use judge::{Judgement, agent_configuration, judge};
pub use keybridge_lab::{Flow, Over, Relay};
pub use scene::{Plan, Scene, shared_engine};
pub use signers::{Signers, Turn};

use std::time::SystemTime;

use rustix::process::Signal;

use crate::lab::{eventually, run, signal};

/// What can happen to a part of the chain.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The container, by what the engine is told.
    Container(ContainerFault),
    /// The engine; the scene needs one of its own.
    Engine(EngineFault),
    /// A process.
    Process(Part, Blow),
    /// gpg-agent reads its configuration again and forgets what it has cached.
    AgentReloaded,
    /// The bytes between the bridge and the engine; the scene needs a relay.
    Link(Over, Flow),
}

/// What an engine does to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerFault {
    /// Killed, and started again.
    Killed,
    /// Restarted by one command.
    Restarted,
    /// Paused, and let go on.
    Paused,
    /// Removed, and another one made under its name.
    Recreated,
}

/// What is done to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// Told to end, and started again.
    Stopped,
    /// SIGKILL, and started again.
    Killed,
}

/// A process of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The helper in the container.
    Helper,
    /// The bridge on the host.
    Serve,
    /// gpg-agent on the host.
    Agent,
}

/// What is done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL. It comes back when somebody starts another one.
    Killed,
    /// SIGSTOP, and SIGCONT to bring it back.
    Frozen,
}

/// A fault that is there. Dropping it brings the part back too, so that a test that fails can clean up.
pub struct Struck<'a> {
    scene: &'a Scene,
    held: Held,
}

/// What is to be done to bring a part back.
enum Held {
    /// Nothing: it was back at that moment, or never comes back.
    Nothing(SystemTime),
    /// The container is told this.
    Container(&'static str),
    /// Another container is made.
    Recreate,
    /// The engine is started, and the container is back when it runs.
    Engine,
    /// These processes go on.
    Frozen(Vec<u32>),
    /// Bytes move again.
    Link(Over),
}

impl Fault {
    /// Does the harm.
    #[track_caller]
    pub fn strike(self, scene: &Scene) -> Struck<'_> {
        let held = match self {
            Self::Container(fault) => fault.strike(&scene.container),
            Self::Engine(fault) => fault.strike(scene),
            Self::Process(part, blow) => blow.strike(part.pids(scene)),
            Self::AgentReloaded => {
                run(scene.lab.host.command("gpgconf").args(["--reload", "gpg-agent"]));
                Held::now()
            }
            Self::Link(over, flow) => {
                assert!(scene.relay().links() > 0, "no link goes through the relay");
                scene.relay().set(over, flow);
                Held::Link(over)
            }
        };
        Struck { scene, held }
    }
}

impl Struck<'_> {
    /// Brings the part back, and gives back when that was.
    pub fn lift(mut self) -> SystemTime {
        self.undo()
    }

    fn undo(&mut self) -> SystemTime {
        let container = &self.scene.container;
        match std::mem::replace(&mut self.held, Held::now()) {
            Held::Nothing(since) => return since,
            Held::Container(verb) => container.tell(verb),
            Held::Recreate => container.make(),
            Held::Engine => {
                self.scene.engine().start_again();
                eventually("the container runs again", || container.is_running());
            }
            Held::Frozen(pids) => {
                for pid in pids {
                    signal(pid, Signal::CONT);
                }
            }
            Held::Link(over) => self.scene.relay().set(over, Flow::Moving),
        }
        SystemTime::now()
    }
}

impl Drop for Struck<'_> {
    fn drop(&mut self) {
        match self.held {
            // A container that isn't there in the end is as good.
            Held::Nothing(_) | Held::Container(_) | Held::Recreate | Held::Engine => {}
            Held::Frozen(_) | Held::Link(_) => {
                self.undo();
            }
        }
    }
}

impl Held {
    fn now() -> Self {
        Self::Nothing(SystemTime::now())
    }
}

impl ContainerFault {
    fn strike(self, container: &SigningContainer) -> Held {
        match self {
            Self::Killed => {
                container.tell("kill");
                eventually("the container has ended", || !container.is_running());
                Held::Container("start")
            }
            Self::Restarted => {
                container.tell_with("restart", &["--time", "5"]);
                Held::now()
            }
            Self::Paused => {
                container.tell("pause");
                Held::Container("unpause")
            }
            Self::Recreated => {
                container.tell_with("rm", &["--force"]);
                Held::Recreate
            }
        }
    }
}

impl EngineFault {
    fn strike(self, scene: &Scene) -> Held {
        match self {
            Self::Stopped => scene.engine().stop(),
            Self::Killed => scene.engine().kill(),
        }
        Held::Engine
    }
}

impl Part {
    /// Its processes: one, unless something is wrong.
    #[track_caller]
    pub fn pids(self, scene: &Scene) -> Vec<u32> {
        let pids = match self {
            Self::Helper => processes::helpers(&scene.container.id()),
            Self::Serve => vec![scene.serve_pid()],
            Self::Agent => vec![scene.lab.host.agent_pid()],
        };
        assert_eq!(pids.len(), 1, "{self:?}: one process is expected\n{}", scene.describe());
        pids
    }
}

impl Blow {
    fn strike(self, pids: Vec<u32>) -> Held {
        for &pid in &pids {
            signal(
                pid,
                match self {
                    Self::Killed => Signal::KILL,
                    Self::Frozen => Signal::STOP,
                },
            );
        }
        match self {
            Self::Killed => Held::now(),
            Self::Frozen => Held::Frozen(pids),
        }
    }
}
