//! The agents at home: real ones with a key, and stand-ins that give and take bulk.

use std::any::Any;
use std::path::{Path, PathBuf};

use keybridge_lab::{Home, SshHome, run, run_with};

use super::{Lab, Running};
use crate::error::{Context, Error, Result};
use crate::lane::Lane;

/// Who answers at the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AgentKind {
    /// gpg-agent and ssh-agent.
    Real,
    /// This program: it costs next to nothing, and gives and takes bulk.
    StandIn,
}

impl AgentKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::StandIn => "stand-in",
        }
    }

    pub(crate) const fn title(self, lane: Lane) -> &'static str {
        match (self, lane) {
            (Self::Real, Lane::Gpg) => "gpg-agent",
            (Self::Real, Lane::Ssh) => "ssh-agent",
            (Self::StandIn, Lane::Gpg | Lane::Ssh) => "stand-in agent",
        }
    }
}

/// One socket at home that is to be reached from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) lane: Lane,
    pub(crate) agent: AgentKind,
}

/// The two agents of one kind.
pub(crate) struct Agents {
    pub(crate) kind: AgentKind,
    /// The GnuPG home that keybridge lends from.
    pub(crate) home: Home,
    /// gpg-agent's restricted socket.
    pub(crate) gpg: PathBuf,
    pub(crate) ssh: PathBuf,
    lab: Lab,
    _running: Box<dyn Any>,
}

impl Agents {
    /// A gpg-agent and an ssh-agent with a key each.
    pub(crate) fn real(lab: &Lab) -> Result<Self> {
        let home = home_with_key(lab, "real")?;
        home.launch_agent();
        let ssh = SshHome::with_key();
        Ok(Self {
            kind: AgentKind::Real,
            gpg: home.extra_socket(),
            home,
            ssh: ssh.socket(),
            lab: lab.clone(),
            _running: Box::new(ssh),
        })
    }

    /// Stand-ins. The one for gpg-agent takes the place of the restricted socket; the real agent goes on
    /// at the main one, where gpg asks which secret keys can be lent.
    pub(crate) fn stand_in(lab: &Lab) -> Result<Self> {
        let home = home_with_key(lab, "standin")?;
        let (gpg, ssh) = (home.extra_socket(), lab.at("standin.ssh"));
        std::fs::remove_file(&gpg).while_doing(gpg.display())?;
        let mut stand_in = lab.command(&lab.program);
        stand_in.arg("stand-in").arg("--gpg").arg(&gpg).arg("--ssh").arg(&ssh);
        let (running, _) = Running::start_and_hear(&mut stand_in)?;
        let (lab, kind) = (lab.clone(), AgentKind::StandIn);
        Ok(Self { kind, home, gpg, ssh, lab, _running: Box::new(running) })
    }

    /// Every socket of these agents.
    pub(crate) fn sockets(&self) -> [(Endpoint, &Path); 2] {
        let at = |lane| Endpoint { lane, agent: self.kind };
        [(at(Lane::Gpg), &self.gpg), (at(Lane::Ssh), &self.ssh)]
    }

    /// The folders that the sockets are in.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        [&self.gpg, &self.ssh].into_iter().filter_map(|socket| socket.parent())
    }

    /// The keygrip of the subkey that decrypts.
    pub(crate) fn decrypting_keygrip(&self) -> Result<String> {
        self.home.keygrips().pop().ok_or_else(|| Error::new("no subkey"))
    }

    /// A new GnuPG home with the public key, whose agent is at a socket.
    pub(crate) fn home_at(&self, name: &str, socket: &Path, inside: bool) -> Result<PathBuf> {
        let path = self.lab.make_folder(name)?;
        let home = home_in(&self.lab, &path);
        run_with(
            &mut home.gpg(["--no-autostart", "--import"]),
            &run(&mut self.home.gpg(["--export"])),
        );
        // In a container there is no /run/user, and the socket is in the home.
        let at = if inside { path.join("S.gpg-agent") } else { home.socket() };
        // It is used after this: nothing of it may be taken away here.
        std::mem::forget(home);
        std::fs::write(at, format!("%Assuan%\nsocket={}\n", socket.display()))?;
        Ok(path)
    }
}

/// A home with a key that signs and a subkey that decrypts.
fn home_with_key(lab: &Lab, name: &str) -> Result<Home> {
    let home = home_in(lab, &lab.make_folder(name)?);
    home.make_key();
    Ok(home)
}

fn home_in(lab: &Lab, folder: &Path) -> Home {
    Home::at(folder.to_owned(), lab.at("home"), lab.at("tmp"))
}
