//! What is measured: ways from a client to an agent at home, ours and what people use instead.

mod committer;
mod exec_cat;
mod keybridge;
mod own_socket;
mod socat;
mod ssh_reverse;

use std::any::Any;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::lab::{AgentKind, Agents, ClientProcess, Container, Endpoint, Lab, SharedClient};
use crate::lane::Lane;
use crate::question::{Question, Way};

pub(crate) use committer::Committer;
pub(crate) use exec_cat::{ExecCat, PipedCat};
pub(crate) use keybridge::Bridge;

/// Where the clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// On this machine, with a second GnuPG home.
    Local,
    /// In a container.
    Docker,
}

impl Place {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Local => "Local target",
            Self::Docker => "Docker",
        }
    }
}

/// What a subject is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The least that anything costs.
    Floor,
    Ours,
    /// What people use instead.
    Other,
}

/// How many connections a subject takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Many,
    /// One, and for the next one it is started anew.
    OneAtATime,
}

/// Ours.
pub(crate) const OURS: &str = "keybridge";

/// The agent's own socket, mounted into a container.
pub(crate) const MOUNTED: &str = "the agent's own socket, mounted";

/// Two programs of socat, joined by `docker exec -i`.
pub(crate) const PAIR: &str = "socat pair over docker exec -i";

/// A socket that sshd forwards.
pub(crate) const REVERSE: &str = "ssh -R";

/// One way from a client to the agents.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) takes: Takes,
    client: SharedClient,
    sockets: Vec<(Endpoint, PathBuf)>,
    /// What tells a gpg beside the client to use this way.
    pub(crate) gpg_env: Vec<(String, String)>,
    /// Ends with the subject.
    held: Vec<Box<dyn Any>>,
}

impl Subject {
    /// Where the client finds an agent, if this way leads to it.
    pub(crate) fn socket(&self, endpoint: Endpoint) -> Option<&Path> {
        let found = self.sockets.iter().find(|(at, _)| *at == endpoint);
        found.map(|(_, socket)| socket.as_path())
    }

    pub(crate) fn ask(&self, question: &Question) -> Result<Vec<u64>> {
        let asked = self.client.borrow_mut().ask(question);
        asked.map_err(|error| Error::new(format!("{}: {error}", self.name)))
    }

    /// Connects, and keeps the connection for what follows.
    pub(crate) fn open(&self, socket: &Path, lane: Lane) -> Result<()> {
        let question = Question::Open { name: self.name.to_owned(), socket: socket.into(), lane };
        self.ask(&question).map(drop)
    }

    /// Closes what [`Self::open`] has opened.
    pub(crate) fn close(&self) -> Result<()> {
        self.ask(&Question::Close { name: self.name.to_owned() }).map(drop)
    }

    /// Small commands over the kept connection, in nanoseconds each.
    pub(crate) fn round_trips(&self, count: usize) -> Result<Vec<u64>> {
        self.ask(&Question::RoundTrips { name: self.name.to_owned(), count })
    }

    /// Bytes one way over the kept connection.
    pub(crate) fn bulk(&self, way: Way, bytes: usize, keygrip: &str) -> Result<Vec<u64>> {
        let (name, keygrip) = (self.name.to_owned(), keygrip.to_owned());
        self.ask(&Question::Bulk { name, way, bytes, keygrip })
    }

    /// Begins a client that asks for bulk and reads nothing.
    pub(crate) fn stall(&self, socket: &Path, lane: Lane, keygrip: &str) -> Result<()> {
        let (name, keygrip) = (self.stalled(), keygrip.to_owned());
        let question = Question::Stall { name, socket: socket.into(), lane, keygrip };
        self.ask(&question).map(drop)
    }

    /// Ends that client.
    pub(crate) fn end_stall(&self) -> Result<()> {
        self.ask(&Question::Close { name: self.stalled() }).map(drop)
    }

    fn stalled(&self) -> String {
        format!("{} stalled", self.name)
    }
}

/// All subjects of one place.
pub(crate) struct Field {
    pub(crate) place: Place,
    pub(crate) subjects: Vec<Subject>,
    /// The key at the stand-in for gpg-agent that bulk is decrypted with.
    pub(crate) bulk_key: String,
}

impl Field {
    /// This machine alone. A subject leads to agents of both kinds.
    pub(crate) fn local(lab: &Lab, agents: &[Agents]) -> Result<Self> {
        let client = ClientProcess::here(lab)?;
        let subjects = vec![
            own_socket::subject(&client, agents, Place::Local)?,
            keybridge::local(lab, &client, agents)?,
            socat::relay(lab, &client, agents, Place::Local)?,
            ssh_reverse::subject(lab, &client, agents)?,
        ];
        Ok(Self { place: Place::Local, subjects, bulk_key: bulk_key(agents)? })
    }

    /// A container.
    pub(crate) fn docker(lab: &Lab, agents: &[Agents], container: &Container) -> Result<Self> {
        let client = ClientProcess::inside(lab, container)?;
        let mut subjects = vec![own_socket::subject(&client, agents, Place::Docker)?];
        subjects.extend(keybridge::docker(lab, agents)?);
        subjects.push(socat::relay(lab, &client, agents, Place::Docker)?);
        subjects.push(socat::pair_over_exec(lab, &client, agents, container)?);
        Ok(Self { place: Place::Docker, subjects, bulk_key: bulk_key(agents)? })
    }

    /// Subjects that lead to an endpoint.
    pub(crate) fn to(&self, endpoint: Endpoint) -> Vec<(&Subject, &Path)> {
        let leads = |subject| Some((subject, Subject::socket(subject, endpoint)?));
        self.subjects.iter().filter_map(leads).collect()
    }

    /// Whether ours leads to an agent of this lane.
    pub(crate) fn offers(&self, lane: Lane) -> bool {
        let endpoint = Endpoint { lane, agent: AgentKind::StandIn };
        let ours = |subject: &&Subject| subject.role == Role::Ours;
        self.subjects.iter().filter(ours).any(|subject| subject.socket(endpoint).is_some())
    }
}

fn bulk_key(agents: &[Agents]) -> Result<String> {
    let stand_in = agents.iter().find(|agents| agents.kind == AgentKind::StandIn);
    stand_in.ok_or_else(|| Error::new("no stand-in agents"))?.decrypting_keygrip()
}

/// The socket of the real gpg-agent among a subject's.
fn real_gpg(sockets: &[(Endpoint, PathBuf)]) -> Result<&Path> {
    let wanted = Endpoint { lane: Lane::Gpg, agent: AgentKind::Real };
    let found = sockets.iter().find(|(at, _)| *at == wanted);
    found.map(|(_, path)| path.as_path()).ok_or_else(|| Error::new("no way to gpg-agent"))
}

/// A home for gpg whose agent is at the subject's socket, as its environment.
fn gpg_env(
    agents: &[Agents],
    name: &str,
    sockets: &[(Endpoint, PathBuf)],
    place: Place,
) -> Result<Vec<(String, String)>> {
    let real = agents.iter().find(|agents| agents.kind == AgentKind::Real);
    let real = real.ok_or_else(|| Error::new("no real agents"))?;
    let home = real.home_at(name, real_gpg(sockets)?, place == Place::Docker)?;
    Ok(vec![("GNUPGHOME".to_owned(), home.display().to_string())])
}
