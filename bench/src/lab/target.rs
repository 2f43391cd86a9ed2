//! Where clients are, and how keybridge gets there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Agents, ClientProcess, Container, HOST, Lab, SharedClient, SshHost};
use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A second GnuPG home on this machine.
    Local,
    /// A container.
    Docker,
    /// A host that ssh leads to.
    Ssh,
    /// The same, with 50 ms each way.
    SlowSsh,
}

impl Place {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Ssh => "ssh",
            Self::SlowSsh => "slow",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Local => "Local target",
            Self::Docker => "Docker",
            Self::Ssh => "SSH host",
            Self::SlowSsh => "SSH host, 50 ms each way",
        }
    }
}

/// A target that one bridge at a time leads to.
pub(crate) struct Target {
    pub(crate) place: Place,
    pub(crate) at: At,
}

pub(crate) enum At {
    Home(PathBuf),
    Container(Container),
    Host(SshHost),
}

impl Target {
    /// A new one, which sees the agents' own socket.
    pub(crate) fn new(lab: &Lab, place: Place, agents: &Agents) -> Result<Self> {
        let name = format!("{}-{}", place.name(), agents.name);
        let container = || Container::start(lab, &name, agents.socket.parent());
        let at = match place {
            Place::Local => At::Home(lab.make_folder(&name)?),
            Place::Docker => At::Container(container()?),
            Place::Ssh => At::Host(SshHost::new(lab, container()?, false)?),
            Place::SlowSsh => At::Host(SshHost::new(lab, container()?, true)?),
        };
        Ok(Self { place, at })
    }

    /// How keybridge names it.
    pub(crate) fn address(&self) -> String {
        match &self.at {
            At::Home(home) => format!("local:{}", home.display()),
            At::Container(container) => container.name.clone(),
            At::Host(_) => format!("ssh://{HOST}"),
        }
    }

    /// `keybridge`, which finds the target.
    pub(crate) fn keybridge(&self, lab: &Lab, agents: &Agents) -> Command {
        let command = lab.keybridge(agents);
        match &self.at {
            At::Home(_) | At::Container(_) => command,
            At::Host(host) => host.reachable_for(command),
        }
    }

    /// The container that it is or is in.
    pub(crate) fn container(&self) -> Option<&Container> {
        match &self.at {
            At::Home(_) => None,
            At::Container(container) => Some(container),
            At::Host(host) => Some(&host.container),
        }
    }

    /// A client there.
    pub(crate) fn client(&self, lab: &Lab) -> Result<SharedClient> {
        match self.container() {
            None => ClientProcess::here(lab),
            Some(container) => ClientProcess::inside(lab, container),
        }
    }

    /// Makes the next `up` a cold one.
    pub(crate) fn remove_helper(&self, lab: &Lab) -> Result<()> {
        match self.container() {
            None => match fs::remove_dir_all(lab.at("cache")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            },
            Some(container) => container.sh("rm -rf /root/.cache/keybridge").map(drop),
        }
    }

    /// The process of the helper: a child of the host's program, or the one in the target's namespace.
    pub(crate) fn helper_of(&self, host: u32) -> Result<u32> {
        let inside =
            self.container().map(Container::pid).transpose()?.map(namespace).transpose()?;
        let is_it = |pid: &u32| match &inside {
            None => parent(*pid) == Some(host),
            Some(inside) => namespace(*pid).is_ok_and(|namespace| namespace == *inside),
        };
        let processes = fs::read_dir("/proc")?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut helpers = pids.filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "keybridge-remot\n")
        });
        helpers
            .find(is_it)
            .ok_or_else(|| Error::new(format!("no helper runs in {}", self.address())))
    }
}

fn namespace(pid: u32) -> Result<PathBuf> {
    Ok(fs::read_link(Path::new("/proc").join(pid.to_string()).join("ns/pid"))?)
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
