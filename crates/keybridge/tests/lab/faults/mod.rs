//! Faults as a tool: what can be done to each part of the chain, while clients sign.
//!
//! A [`Scene`] is the whole chain with clients that sign all the time. A [`Fault`] harms one part of it:
//! [`Fault::strike`] does the harm, and [`Struck::lift`] brings the part back, where it doesn't come back
//! by itself, and tells when. [`Scene::assert_recovers`] then measures, and
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
pub use keybridge_lab::{Flow, Over, Relay, within as in_time};
pub use scene::{BUSY, CLIENTS, GPG_QUEUE, Plan, RECOVERY, Scene, shared_engine};
pub use signers::{Signers, Turn};

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use rustix::process::Signal;

use crate::lab::{cut_direct_path, eventually, run, signal};

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
    /// The socket in the container.
    Socket(SocketFault),
    /// The bytes between the bridge and the engine; the scene needs a relay.
    Link(Over, Flow),
    /// Bytes that no helper has sent come over the link; the scene needs a relay.
    Garbage,
    /// The way past the engine is cut; it comes back with the next link.
    DirectPath,
    /// So many clients that connect, ask without end, and read nothing.
    Flood(usize),
}

/// What an engine does to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerFault {
    /// Killed, and started again.
    Killed,
    /// Stopped, and started again.
    Stopped,
    /// Restarted by one command.
    Restarted,
    /// Paused, and let go on.
    Paused,
    /// Removed for good.
    Removed,
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
    /// SIGSTOP, and SIGCONT to bring it back.
    Frozen,
}

/// A process of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The helper in the container, as the kernel finds it.
    Helper,
    /// What the engine started for the helper, as the engine tells it.
    Exec,
    /// What carries the streams between the helper and the engine. Killed, it takes the container with it.
    Shim,
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

/// What is done to the socket in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketFault {
    /// It is removed.
    Removed,
    /// A gpg-agent of the container has its place.
    Stray,
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
    /// The clients go away.
    Flood(Vec<UnixStream>),
}

impl Fault {
    /// Whether it needs a relay.
    pub fn needs_relay(self) -> bool {
        match self {
            Self::Link(..) | Self::Garbage => true,
            Self::Container(_)
            | Self::Engine(_)
            | Self::Process(..)
            | Self::AgentReloaded
            | Self::Socket(_)
            | Self::DirectPath
            | Self::Flood(_) => false,
        }
    }

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
            Self::Socket(fault) => fault.strike(&scene.container),
            Self::Link(over, flow) => {
                assert!(scene.relay().links() > 0, "no link goes through the relay");
                scene.relay().set(over, flow);
                Held::Link(over)
            }
            Self::Garbage => {
                assert!(scene.relay().links() > 0, "no link goes through the relay");
                scene.relay().inject(&garbage());
                Held::now()
            }
            Self::DirectPath => {
                for helper in Part::Helper.pids(scene) {
                    cut_direct_path(scene.serve_pid(), helper);
                }
                Held::now()
            }
            Self::Flood(clients) => flood(scene, clients),
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
            Held::Flood(clients) => drop(clients),
        }
        SystemTime::now()
    }
}

impl Drop for Struck<'_> {
    fn drop(&mut self) {
        match self.held {
            // A container that isn't there in the end is as good.
            Held::Nothing(_) | Held::Container(_) | Held::Recreate | Held::Engine => {}
            Held::Frozen(_) | Held::Link(_) | Held::Flood(_) => {
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
            Self::Stopped => {
                container.tell_with("stop", &["--time", "5"]);
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
            Self::Removed => {
                container.tell_with("rm", &["--force"]);
                Held::now()
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
            Self::Frozen => return Blow::Frozen.strike(vec![scene.engine().pid()]),
        }
        Held::Engine
    }
}

impl Part {
    /// Its processes: one, unless something is wrong.
    #[track_caller]
    pub fn pids(self, scene: &Scene) -> Vec<u32> {
        let id = scene.container.id();
        let pids = match self {
            Self::Helper => processes::helpers(&id),
            Self::Exec => processes::exec(scene.engine_socket(), &id).into_iter().collect(),
            Self::Shim => processes::shim(&id).into_iter().collect(),
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

impl SocketFault {
    fn strike(self, container: &SigningContainer) -> Held {
        let script = match self {
            Self::Removed => "rm ~/.gnupg/S.gpg-agent",
            // An agent of another home, whose socket takes the place of ours at one stroke: one that is
            // started at the path can come too late for it.
            Self::Stray => {
                "mkdir -m 700 /tmp/stray && gpg-agent --homedir /tmp/stray --daemon >/tmp/started &&
                 mv -f /tmp/stray/S.gpg-agent ~/.gnupg/S.gpg-agent"
            }
        };
        let done = container.sh(script);
        assert!(done.status.success(), "{self:?}: {done:?}");
        Held::now()
    }
}

/// What the engine would send for a command's output, with a frame in it that is longer than any.
fn garbage() -> Vec<u8> {
    [&[1, 0, 0, 0, 0, 0, 0, 8][..], &[0xff; 8]].concat()
}

fn flood(scene: &Scene, clients: usize) -> Held {
    // Not through a link of the container's own making: the path is known.
    let socket = scene.container.path_from_outside("/root/.gnupg/S.gpg-agent");
    let connect = |_| {
        let mut client = UnixStream::connect(&socket).ok()?;
        client.set_nonblocking(true).ok()?;
        // As much as it takes at once.
        let _ = client.write_all("GETINFO version\n".repeat(1000).as_bytes());
        Some(client)
    };
    let connected: Vec<UnixStream> = (0..clients).filter_map(connect).collect();
    assert!(!connected.is_empty(), "nobody answers at {}", socket.display());
    Held::Flood(connected)
}
