//! What is at the path of the socket before we bind it, and how the path can be freed. Without
//! `--replace` a socket that somebody listens at is left alone, but for that of a gpg-agent without
//! secret keys.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::printable;
use keybridge_proto::report::FailureKind;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::DiscoveredLane;
use crate::error::{Error, quoted};
use crate::home::safe_path::{self, remove_if_exists};
use crate::socket::gpg_agent_listener;
use crate::socket::listening_socket::is_our_socket;
use crate::systemd::UnitName;

/// How long a listener may take to answer all questions.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What is at the path.
#[derive(Debug)]
pub(crate) enum CurrentListener {
    /// Nothing.
    Nobody,
    /// A socket of this user that no process listens at.
    Stale,
    /// A gpg-agent of this home without secret keys.
    AgentWithoutKeys(PeerProcess),
    /// A process that we may not end: what it does, and what a person can do about it.
    Alive(PeerProcess, Activity, Option<String>),
    /// Something that we may not remove.
    Foreign(String),
}

/// What the kernel calls systemd.
pub(crate) const SYSTEMD: &str = "systemd";

/// What a process does at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    AcceptsNoConnection,
    /// It is not asked: an ssh-agent may be all there is.
    Answers,
    StartsAgents,
    HasSecretKeys,
    IsRestricted,
    IsNoGpgAgent,
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AcceptsNoConnection => "accepts no connection",
            Self::Answers => "answers there",
            Self::StartsAgents => "starts a gpg-agent for every client",
            Self::HasSecretKeys => "is a gpg-agent with secret keys",
            Self::IsRestricted => "is another bridge or a forwarded socket",
            Self::IsNoGpgAgent => "doesn't answer like a gpg-agent",
        })
    }
}

/// The process at the other end of a socket.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    /// The name of its program, if it has one here.
    pub(crate) program: Option<String>,
    /// `None` outside of this target.
    pub(crate) pid: Option<i32>,
}

impl std::fmt::Display for PeerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => {
                let program = self.program.as_deref().unwrap_or("a process");
                write!(f, "{} (pid {pid})", printable(program))
            }
            None => f.write_str("a process outside of this target"),
        }
    }
}

impl PeerProcess {
    pub(crate) fn of(stream: &UnixStream) -> Self {
        // A process of another namespace has number 0 here.
        Self::with_pid(stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|&pid| pid > 0))
    }

    pub(crate) fn with_pid(pid: Option<i32>) -> Self {
        let comm = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/comm")).ok());
        let program = String::from_utf8_lossy(&comm.unwrap_or_default()).trim().to_owned();
        Self { program: Some(program).filter(|program| !program.is_empty()), pid }
    }

    /// systemd holds the socket and would start the agent again.
    pub(crate) fn is_systemd(&self) -> bool {
        self.program.as_deref() == Some(SYSTEMD)
    }
}

impl CurrentListener {
    /// Finds out what is there. Changes nothing.
    pub(crate) async fn find(path: &Path, discovered: &DiscoveredLane) -> Result<Self, Error> {
        let metadata = match std::fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nobody),
            Err(error) => return Err(Error::io("look at", path, error)),
        };
        if !is_our_socket(&metadata) {
            use std::os::unix::fs::{FileTypeExt, MetadataExt};
            let what = if metadata.file_type().is_socket() {
                let (owner, euid) = (metadata.uid(), safe_path::euid());
                format!("a socket of uid {owner}, and this is uid {euid}")
            } else if metadata.is_symlink() {
                "a link".to_owned()
            } else {
                "not a socket".to_owned()
            };
            return Ok(Self::Foreign(what));
        }
        let stream = match timeout(ANSWER_TIME, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(Self::Stale);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nobody),
            Ok(Err(_)) | Err(_) => {
                let who = PeerProcess { program: None, pid: None };
                return Ok(Self::Alive(who, Activity::AcceptsNoConnection, None));
            }
        };
        Ok(match discovered {
            DiscoveredLane::Gpg(gnupg) => gpg_agent_listener::identify(stream, gnupg).await,
            DiscoveredLane::Ssh(_) | DiscoveredLane::Git(_) => {
                Self::Alive(PeerProcess::of(&stream), Activity::Answers, None)
            }
        })
        .map(|listener: Self| listener.with_units(path, discovered))
    }

    /// Whether systemd listens there.
    pub(crate) fn is_systemd(&self) -> bool {
        matches!(self, Self::Alive(who, ..) if who.is_systemd())
    }

    /// Adds what `--replace` does about the units that listen there.
    fn with_units(self, path: &Path, discovered: &DiscoveredLane) -> Self {
        match self {
            Self::Alive(who, what, None) if who.is_systemd() => {
                let units = discovered.units_at(path);
                let names: Vec<&str> = units.iter().map(UnitName::as_str).collect();
                let hint = (!names.is_empty()).then(|| {
                    format!("--replace masks {} until the bridge ends", names.join(" and "))
                });
                Self::Alive(who, what, hint)
            }
            other => other,
        }
    }

    /// Why the path can't be used, if it can't.
    pub(crate) fn refusal(&self, path: &Path, replace: bool) -> Option<Error> {
        let shown = path.display();
        match self {
            Self::Nobody | Self::Stale | Self::AgentWithoutKeys(_) => None,
            Self::Alive(..) if replace => None,
            Self::Alive(who, what, hint) => {
                let message = format!("{shown} is in use: {who} {what}");
                let error = Error::new(FailureKind::InUse, message)
                    .hint("stop it, or take its place with --replace");
                Some(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
            Self::Foreign(what) => {
                let error = Error::new(FailureKind::NotPermitted, format!("{shown} is {what}"));
                Some(error.hint(format!("move it away if you don't need it: {}", quoted(path))))
            }
        }
    }

    /// Frees the path. An agent without keys is asked to end; only a socket of ours is removed.
    pub(crate) async fn free_path(&self, path: &Path, replace: bool) -> Result<(), Error> {
        if let Some(refusal) = self.refusal(path, replace) {
            return Err(refusal);
        }
        if let Self::AgentWithoutKeys(who) = self {
            tracing::info!("asking {who}, which has no secret keys, to end");
            if !gpg_agent_listener::end(path).await && !replace {
                let message = format!("{} is in use: {who} doesn't end", path.display());
                let error = Error::new(FailureKind::InUse, message);
                return Err(error.hint("run `gpgconf --kill gpg-agent` in the target"));
            }
        }
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if is_our_socket(&metadata) => {
                // A process may have bound it since.
                if !replace && answers(path).await {
                    let message = format!("{} is in use since a moment ago", path.display());
                    return Err(Error::new(FailureKind::InUse, message).hint("try again"));
                }
                remove_if_exists(path).map_err(|error| Error::io("remove", path, error))
            }
            // Nothing, or something that appeared just now: then binding fails.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

pub(crate) async fn answers(path: &Path) -> bool {
    UnixStream::connect(path).await.is_ok()
}
