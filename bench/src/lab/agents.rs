//! The agents at home: real ones with a key, and stand-ins that give and take bulk.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Lab, Running, output, wait_until};
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
    pub(crate) home: PathBuf,
    /// gpg-agent's restricted socket.
    pub(crate) gpg: PathBuf,
    pub(crate) ssh: Option<PathBuf>,
    lab: Lab,
    _running: Vec<Running>,
}

impl Agents {
    /// A gpg-agent and an ssh-agent with a key each.
    pub(crate) fn real(lab: &Lab) -> Result<Self> {
        let home = lab.make_folder("real")?;
        make_key(lab, &home)?;
        output(lab.command("gpgconf").env("GNUPGHOME", &home).args(["--launch", "gpg-agent"]))?;
        let (ssh, key) = (lab.at("real.ssh"), lab.at("real.key"));
        let mut agent = lab.command("ssh-agent");
        let running = Running::start(agent.args(["-D", "-a"]).arg(&ssh).stdout(null()?))?;
        wait_until("ssh-agent listens", || Ok(ssh.exists()))?;
        let mut keygen = lab.command("ssh-keygen");
        output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key))?;
        output(lab.command("ssh-add").arg("-q").arg(&key).env("SSH_AUTH_SOCK", &ssh))?;
        Self::of(lab, AgentKind::Real, home, ssh, running)
    }

    /// Stand-ins. The one for gpg-agent takes the place of the restricted socket; the real agent goes on
    /// at the main one, where gpg asks which secret keys can be lent.
    pub(crate) fn stand_in(lab: &Lab) -> Result<Self> {
        let home = lab.make_folder("standin")?;
        make_key(lab, &home)?;
        let (gpg, ssh) = (extra_socket(lab, &home)?, lab.at("standin.ssh"));
        std::fs::remove_file(&gpg).while_doing(gpg.display())?;
        let mut stand_in = lab.command(&lab.program);
        stand_in.arg("stand-in").arg("--gpg").arg(&gpg).arg("--ssh").arg(&ssh);
        let (running, _) = Running::start_and_hear(&mut stand_in)?;
        Self::of(lab, AgentKind::StandIn, home, ssh, running)
    }

    fn of(
        lab: &Lab,
        kind: AgentKind,
        home: PathBuf,
        ssh: PathBuf,
        running: Running,
    ) -> Result<Self> {
        let gpg = extra_socket(lab, &home)?;
        let lab = lab.clone();
        Ok(Self { kind, home, gpg, ssh: Some(ssh), lab, _running: vec![running] })
    }

    /// Every socket of these agents.
    pub(crate) fn sockets(&self) -> Vec<(Endpoint, &Path)> {
        let at = |lane| Endpoint { lane, agent: self.kind };
        let ssh = self.ssh.iter().map(|ssh| (at(Lane::Ssh), ssh.as_path()));
        std::iter::once((at(Lane::Gpg), self.gpg.as_path())).chain(ssh).collect()
    }

    /// The keygrip of the subkey that decrypts.
    pub(crate) fn decrypting_keygrip(&self) -> Result<String> {
        let words = ["--batch", "--with-colons", "--with-keygrip", "-K"];
        let listing = output(gpg(&self.lab, &self.home).args(words))?;
        let keygrip = listing.lines().filter(|line| line.starts_with("grp:")).nth(1);
        let keygrip = keygrip.and_then(|line| line.split(':').nth(9)).map(str::to_owned);
        keygrip.ok_or_else(|| Error::new(format!("no subkey: {listing}")))
    }

    /// A new GnuPG home with the public key, whose agent is at a socket.
    pub(crate) fn home_at(&self, name: &str, socket: &Path, inside: bool) -> Result<PathBuf> {
        let home = self.lab.make_folder(name)?;
        let keys = self.lab.at(&format!("{name}.keys"));
        output(gpg(&self.lab, &self.home).args(["--batch", "--yes", "--export", "-o"]).arg(&keys))?;
        output(gpg(&self.lab, &home).args(["--batch", "--no-autostart", "--import"]).arg(&keys))?;
        // In a container there is no /run/user, and the socket is in the home.
        let at = if inside {
            home.join("S.gpg-agent")
        } else {
            socket_of(&self.lab, &home, "agent-socket")?
        };
        std::fs::write(at, format!("%Assuan%\nsocket={}\n", socket.display()))?;
        Ok(home)
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        let mut gpgconf = self.lab.command("gpgconf");
        let _ = output(gpgconf.env("GNUPGHOME", &self.home).args(["--kill", "all"]));
    }
}

/// A key that signs, with a subkey that decrypts.
fn make_key(lab: &Lab, home: &Path) -> Result<()> {
    let words = ["--batch", "--passphrase", "", "--quick-gen-key", "Bench <bench@example>"];
    output(gpg(lab, home).args(words).args(["future-default", "default", "never"])).map(drop)
}

fn gpg(lab: &Lab, home: &Path) -> Command {
    let mut gpg = lab.command("gpg");
    gpg.env("GNUPGHOME", home).arg("-q");
    gpg
}

fn extra_socket(lab: &Lab, home: &Path) -> Result<PathBuf> {
    socket_of(lab, home, "agent-extra-socket")
}

/// Where a socket of a home on this machine is.
fn socket_of(lab: &Lab, home: &Path, which: &str) -> Result<PathBuf> {
    let gpgconf = || {
        let mut gpgconf = lab.command("gpgconf");
        gpgconf.env("GNUPGHOME", home);
        gpgconf
    };
    // Without /run/user there is no folder to be made, and that is no failure.
    let _ = output(gpgconf().arg("--create-socketdir"));
    let path = output(gpgconf().args(["--list-dirs", which]))?;
    match path.trim() {
        "" => Err(Error::new(format!("gpgconf names no {which}"))),
        path => Ok(path.into()),
    }
}

fn null() -> Result<std::fs::File> {
    Ok(std::fs::OpenOptions::new().write(true).open("/dev/null")?)
}
