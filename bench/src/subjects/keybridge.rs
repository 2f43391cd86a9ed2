//! keybridge itself: a bridge for each kind of agent, since a target has one.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{OURS, Role, Subject, Takes};
use crate::error::{Context, Error, Result};
use crate::lab::{
    AgentKind, Agents, ClientProcess, Container, Endpoint, Lab, SLOW, SharedClient, SlowHost,
    output,
};
use crate::lane::{LANES, Lane};

/// Only the git lane.
const GIT: [&str; 3] = ["--lanes", "git", "--git"];

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
        Self::start(|| lab.keybridge(agents), &target, &[], helper)
    }

    /// A bridge to a container.
    pub(crate) fn docker(lab: &Lab, agents: &Agents, container: &Container) -> Result<Self> {
        Self::container(|| lab.keybridge(agents), &container.name, &[], container)
    }

    /// A bridge to a container, which has git sign and nothing else.
    pub(crate) fn docker_git(lab: &Lab, agents: &Agents, container: &Container) -> Result<Self> {
        Self::container(|| lab.keybridge(agents), &container.name, &GIT, container)
    }

    /// The same to a host behind a slow link.
    pub(crate) fn slow_git(lab: &Lab, agents: &Agents, host: &SlowHost) -> Result<Self> {
        let keybridge = || host.reachable_for(lab.keybridge(agents));
        Self::container(keybridge, &format!("ssh://{SLOW}"), &GIT, &host.container)
    }

    fn container(
        keybridge: impl Fn() -> Command,
        target: &str,
        options: &[&str],
        container: &Container,
    ) -> Result<Self> {
        Self::start(keybridge, target, options, |_| container.pid_of("keybridge-remote"))
    }

    fn start(
        keybridge: impl Fn() -> Command,
        target: &str,
        options: &[&str],
        helper: impl FnOnce(u32) -> Result<u32>,
    ) -> Result<Self> {
        let mut down = keybridge();
        down.args(["down", target]);
        let mut up = keybridge();
        up.args(["up", target, "--json"]).args(options);
        let status = only_bridge(&output(&mut up)?)?;
        let host = status.get("pid").and_then(Value::as_u64).and_then(|pid| pid.try_into().ok());
        let host = host.ok_or_else(|| Error::new(format!("no process: {status}")))?;
        Ok(Self { status, pids: [host, helper(host)?], down })
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

/// The bridge in what `--json` prints.
fn only_bridge(said: &str) -> Result<Value> {
    let said: Value = serde_json::from_str(said).while_doing("keybridge --json")?;
    let bridge = said.get("bridges").and_then(|bridges| bridges.get(0)).cloned();
    bridge.ok_or_else(|| Error::new(format!("no bridge: {said}")))
}

pub(super) fn local(lab: &Lab, client: &SharedClient, agents: &[Agents]) -> Result<Subject> {
    let mut subject = Subject {
        name: OURS,
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

/// A subject for each kind of agent. Each bridge has a container of its own.
pub(super) fn docker(lab: &Lab, agents: &[Agents]) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for agents in agents {
        let container = Container::start(lab, agents.kind.name(), &[])?;
        let mut subject = Subject {
            name: OURS,
            role: Role::Ours,
            takes: Takes::Many,
            client: ClientProcess::inside(lab, &container)?,
            sockets: Vec::new(),
            gpg_env: Vec::new(),
            held: Vec::new(),
        };
        let bridge = Bridge::docker(lab, agents, &container)?;
        add(&mut subject, agents, bridge);
        subject.held.push(Box::new(container));
        subjects.push(subject);
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
