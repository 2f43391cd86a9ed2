//! keybridge itself: a bridge for each kind of agent, since a target has one.

use std::path::{Path, PathBuf};
use std::process::Command;

use keybridge_lab::eventually;
use serde_json::Value;

use super::{DIRECT_PATH, EXEC, LOCAL, PASSED, Role, Subject, Takes};
use crate::error::{Context, Error, Result};
use crate::lab::{
    AgentKind, Agents, ClientProcess, Container, Endpoint, Lab, SharedClient, output,
};
use crate::lane::{LANES, Lane};

/// A bridge in the background, as people have it. It is taken down in the end.
pub(crate) struct Bridge {
    /// What `up` said about it.
    status: Value,
    /// The processes of both programs, the host's first.
    pids: [u32; 2],
    down: Command,
}

impl Bridge {
    /// A bridge to a second GnuPG home on this machine.
    pub(crate) fn local(lab: &Lab, agents: &Agents, home: &Path) -> Result<Self> {
        let target = format!("local:{}", home.display());
        let helper = |host| child_of(host, "keybridge-remot");
        Self::start(lab, agents, &target, LinkPath::Passed, helper)
    }

    /// A bridge to a container.
    pub(crate) fn docker(
        lab: &Lab,
        agents: &Agents,
        container: &Container,
        path: LinkPath,
    ) -> Result<Self> {
        let helper = |_| container.pid_of("keybridge-remote");
        Self::start(lab, agents, &container.name, path, helper)
    }

    fn start(
        lab: &Lab,
        agents: &Agents,
        target: &str,
        path: LinkPath,
        helper: impl FnOnce(u32) -> Result<u32>,
    ) -> Result<Self> {
        let mut down = lab.keybridge(agents);
        down.args(["down", target]);
        let mut up = lab.keybridge(agents);
        up.args(["up", target, "--json"]).args(path.arguments());
        let status = only_bridge(&output(&mut up)?)?;
        let host = status.get("pid").and_then(Value::as_u64).and_then(|pid| pid.try_into().ok());
        let host = host.ok_or_else(|| Error::new(format!("no process: {status}")))?;
        let bridge = Self { status, pids: [host, helper(host)?], down };
        // The path is taken once the bridge works, and what isn't on it must not be measured as if it was.
        eventually(&format!("the bytes go the way {}", path.word()), || {
            let status = output(lab.keybridge(agents).args(["status", target, "--json"]));
            let status = status.and_then(|said| only_bridge(&said));
            status.is_ok_and(|status| status.get("path") == Some(&Value::from(path.word())))
        });
        Ok(bridge)
    }

    /// The socket of a lane in the target.
    pub(crate) fn socket(&self, lane: Lane) -> Option<PathBuf> {
        let lanes = self.status.get("lanes")?;
        lanes.get(lane.name())?.get("socket")?.as_str().map(PathBuf::from)
    }

    /// The processes of both programs, the host's first.
    pub(crate) fn pids(&self) -> [u32; 2] {
        self.pids
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Err(error) = output(&mut self.down) {
            eprintln!("{error}");
        }
    }
}

/// The way that a client's bytes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPath {
    /// Through the engine's exec.
    Exec,
    /// Over a socket of the helper.
    Direct,
    /// What the program chooses on one kernel: the helper passes its clients to the host.
    Passed,
}

impl LinkPath {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Exec => &["--no-direct"],
            Self::Direct => &["--no-pass"],
            Self::Passed => &[],
        }
    }

    /// As `status` calls it.
    const fn word(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Direct => "direct",
            Self::Passed => "passed",
        }
    }
}

/// The bridge in what `--json` prints.
fn only_bridge(said: &str) -> Result<Value> {
    let said: Value = serde_json::from_str(said).while_doing("keybridge --json")?;
    let bridge = said.get("bridges").and_then(|bridges| bridges.get(0)).cloned();
    bridge.ok_or_else(|| Error::new(format!("no bridge: {said}")))
}

pub(super) fn local(lab: &Lab, client: &SharedClient, agents: &[Agents]) -> Result<Subject> {
    let mut subject = Subject {
        name: LOCAL,
        role: Role::Ours,
        takes: Takes::Many,
        client: client.clone(),
        sockets: Vec::new(),
        gpg_env: Vec::new(),
        held: Vec::new(),
    };
    for agents in agents {
        let home = lab.make_folder(&format!("target-{}", agents.kind.name()))?;
        if agents.kind == AgentKind::Real {
            subject.gpg_env = vec![("GNUPGHOME".to_owned(), home.display().to_string())];
        }
        let bridge = Bridge::local(lab, agents, &home)?;
        add(&mut subject, agents, bridge);
    }
    Ok(subject)
}

const PATHS: [(&str, LinkPath); 3] =
    [(EXEC, LinkPath::Exec), (DIRECT_PATH, LinkPath::Direct), (PASSED, LinkPath::Passed)];

/// A subject for each way that the program offers. Each bridge has a container of its own, and each
/// subject a client for each kind of agent.
pub(super) fn docker(lab: &Lab, agents: &[Agents]) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for (name, path) in PATHS {
        for agents in agents {
            let label = format!("{}-{path:?}", agents.kind.name()).to_lowercase();
            let container = Container::start(lab, &label, &[])?;
            let mut subject = Subject {
                name,
                role: Role::Ours,
                takes: Takes::Many,
                client: ClientProcess::inside(lab, &container)?,
                sockets: Vec::new(),
                gpg_env: Vec::new(),
                held: Vec::new(),
            };
            let bridge = Bridge::docker(lab, agents, &container, path)?;
            add(&mut subject, agents, bridge);
            subject.held.push(Box::new(container));
            subjects.push(subject);
        }
    }
    Ok(subjects)
}

fn add(subject: &mut Subject, agents: &Agents, bridge: Bridge) {
    for lane in LANES {
        let endpoint = Endpoint { lane, agent: agents.kind };
        subject.sockets.extend(bridge.socket(lane).map(|socket| (endpoint, socket)));
    }
    subject.held.push(Box::new(bridge));
}

/// The child of a process that runs a program.
fn child_of(pid: u32, program: &str) -> Result<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let runs = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm"))
            .is_ok_and(|name| name.starts_with(program))
    };
    let found = children.split_whitespace().filter_map(|child| child.parse().ok()).find(runs);
    found.ok_or_else(|| Error::new(format!("no {program} runs below {pid}")))
}
