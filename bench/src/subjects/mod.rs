//! What is measured: ways from a client to an agent of the host, ours and what people use instead.

mod bridge;
mod committer;
mod socat;
mod ssh_reverse;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::lab::{Agents, At, Lab, Place, Running, SharedClient, Target};
use crate::question::Question;

pub(crate) use bridge::{Bridge, ONLY_GIT};
pub(crate) use committer::Committer;
pub(crate) use ssh_reverse::forward;

/// Ours.
pub(crate) const OURS: &str = "keybridge";

/// The agent's own socket, which containers have mounted: the least that anything costs.
const OWN: &str = "the agent's own socket";

/// Two programs of socat, joined by `docker exec -i`.
pub(crate) const PAIR: &str = "socat pair over docker exec -i";

/// A socket that sshd forwards.
pub(crate) const REVERSE: &str = "ssh -R";

/// How many connections a subject takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Many,
    /// One, and for the next one it is started anew.
    OneAtATime,
}

/// One way from a client to an agent.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    /// Where the client finds the agent.
    pub(crate) socket: PathBuf,
    /// The home of a gpg that uses this way.
    pub(crate) gpg_home: PathBuf,
    client: SharedClient,
    /// Ends with the subject.
    _running: Option<Running>,
}

impl Subject {
    pub(crate) fn ask(&self, question: &Question) -> Result<Vec<u64>> {
        let asked = self.client.borrow_mut().ask(question);
        asked.map_err(|error| Error::new(format!("{}: {error}", self.name)))
    }

    /// Connects, and keeps the connections for what follows.
    pub(crate) fn open(&self, clients: usize) -> Result<()> {
        let (name, socket) = (self.name.to_owned(), self.socket.clone());
        self.ask(&Question::Open { name, socket, clients }).map(drop)
    }

    /// Closes what [`Self::open`] has opened.
    pub(crate) fn close(&self) -> Result<()> {
        self.ask(&Question::Close { name: self.name.to_owned() }).map(drop)
    }
}

/// All subjects of a target, which lead to the same agent.
pub(crate) struct Field<'a> {
    pub(crate) agents: &'a Agents,
    /// Ours is the first.
    pub(crate) subjects: Vec<Subject>,
    pub(crate) bridge: Bridge,
    pub(crate) target: Target,
}

impl<'a> Field<'a> {
    pub(crate) fn new(lab: &Lab, agents: &'a Agents, target: Target) -> Result<Self> {
        // Not in the folder that is mounted: a socket of the container's own.
        const INSTEAD: &str = "/tmp/instead";
        let client = target.client(lab)?;
        let subject = |name, takes, socket: &Path, gpg_home, running| Subject {
            name,
            takes,
            socket: socket.to_owned(),
            gpg_home,
            client: client.clone(),
            _running: running,
        };
        let home_at = |short: &str, socket: &Path| {
            let name = format!("{}-{}-{short}", target.place.name(), agents.name);
            agents.home_at(lab, &name, socket, target.place != Place::Local)
        };
        let bridge = Bridge::start(lab, agents, &target, &[])?;
        let bridged = match &target.at {
            At::Home(home) => home.clone(),
            At::Container(_) | At::Host(_) => "/root/.gnupg".into(),
        };
        let own = home_at("own", &agents.socket)?;
        let mut subjects = vec![
            subject(OURS, Takes::Many, &bridge.socket()?, bridged, None),
            subject(OWN, Takes::Many, &agents.socket, own, None),
        ];
        let instead = match &target.at {
            At::Home(_) => None,
            At::Container(container) => {
                let pair = socat::pair(lab, container, INSTEAD, &agents.socket)?;
                Some((PAIR, Takes::OneAtATime, pair))
            }
            At::Host(host) => {
                let forwarding = forward(lab, host, INSTEAD, &agents.socket)?;
                Some((REVERSE, Takes::Many, forwarding))
            }
        };
        if let Some((name, takes, running)) = instead {
            let socket = Path::new(INSTEAD);
            let home = home_at("instead", socket)?;
            subjects.push(subject(name, takes, socket, home, Some(running)));
        }
        Ok(Self { agents, subjects, bridge, target })
    }
}
