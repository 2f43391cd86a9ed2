//! Dials an agent by a path: a local socket, or a file that names a TCP port or another path.

use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::{LocalSocket, LocalStream};
use keybridge_proto::Secret;
use keybridge_proto::socket_file::{
    AgentAddress, Contents, MAX_SIZE, Opening, ResolveError, resolve,
};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::AgentStream;
use crate::gnupg::Gnupg;
use crate::platform::{PathKind, ids, path_kind};
use crate::{Error, ErrorKind};

/// After a failed start, how long clients wait before the agent is started again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The pause between attempts while the agent's backlog is full.
const PAUSE_WHILE_BUSY: Duration = Duration::from_millis(5);

/// Dials one agent. Cheap to clone; the clones start the agent together, once.
#[derive(Debug, Clone)]
pub struct AgentDialer(Rc<Dialer>);

#[derive(Debug)]
struct Dialer {
    path: PathBuf,
    /// Starts the agent, if it may be started.
    gnupg: Option<Gnupg>,
    /// When the last start failed. Locked during a start, so that all who wait share one.
    failed: Mutex<Option<Instant>>,
}

/// Why dialling an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The path doesn't lead to a socket or a port.
    #[error("{error}{cause}", error = .0, cause = cause(.0))]
    Resolve(#[from] ResolveError),
    /// The connection failed.
    #[error("connecting to {path}: {source}")]
    Connect {
        /// The path that was dialled.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The agent isn't running and could not be started.
    #[error("gpg-agent isn't running, and starting it failed: {0}")]
    Launch(#[source] Error),
}

impl AgentDialer {
    /// A dialer for `path` that never starts an agent.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self::new(path.into(), None)
    }

    pub(super) fn new(path: PathBuf, gnupg: Option<Gnupg>) -> Self {
        Self(Rc::new(Dialer { path, gnupg, failed: Mutex::new(None) }))
    }

    /// The path of the socket, or of the file that leads to it.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Connects, and starts the agent if it isn't running. A socket file is read each time: a
    /// restarted agent has another port and nonce. Waits while the agent's backlog is full, so the
    /// caller sets a time limit. Safe to cancel.
    pub async fn dial(&self) -> Result<(AgentStream, Opening), DialError> {
        let error = match self.connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let Some(gnupg) = self.0.gnupg.as_ref().filter(|_| error.is_absence()) else {
            return Err(error);
        };
        let mut failed = self.0.failed.lock().await;
        // Somebody else may have started it in the meantime.
        match self.connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) if !error.is_absence() => return Err(error),
            Err(_) if failed.is_some_and(|at| at.elapsed() < PAUSE_AFTER_FAILURE) => {
                return Err(error);
            }
            Err(_) => {}
        }
        tracing::info!(socket = %self.0.path.display(), "starting gpg-agent");
        let result = match gnupg.launch_agent().await {
            Ok(()) => self.connect().await,
            Err(error) => Err(DialError::Launch(error)),
        };
        *failed = result.is_err().then(Instant::now);
        if let Err(error) = &result {
            tracing::info!(%error, "gpg-agent can't be reached");
        }
        result
    }

    async fn connect(&self) -> Result<(AgentStream, Opening), DialError> {
        let endpoint = resolve(&self.0.path, contents, |name| std::env::var_os(name))?;
        let path = self.0.path.display();
        match endpoint {
            AgentAddress::Unix(path) => connect_local(&path).await,
            AgentAddress::Native { port, nonce } => {
                Ok((connect_tcp(port, &path).await?, Opening::native(&nonce)))
            }
            AgentAddress::Cygwin { port, nonce } => {
                let (uid, gid) = identity();
                let opening = Opening::cygwin(&nonce, std::process::id(), uid, gid);
                Ok((connect_tcp(port, &path).await?, opening))
            }
        }
    }
}

/// The source of an error, to put after it on the same line.
fn cause(error: &ResolveError) -> String {
    std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default()
}

impl DialError {
    /// The reason without the path.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Resolve(ResolveError::Read { source, .. }) | Self::Connect { source, .. } => {
                source.to_string()
            }
            Self::Resolve(_) | Self::Launch(_) => self.to_string(),
        }
    }

    /// Whether no agent is running, so that starting one can help.
    pub fn is_absence(&self) -> bool {
        let error = match self {
            Self::Resolve(ResolveError::Read { source, .. }) | Self::Connect { source, .. } => {
                source
            }
            Self::Resolve(_) | Self::Launch(_) => return false,
        };
        // A reset before the first byte: the agent exited while we were in its backlog.
        matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
        )
    }
}

impl From<DialError> for Error {
    fn from(error: DialError) -> Self {
        match &error {
            DialError::Launch(Self { hints, .. }) => {
                let hints = hints.clone();
                Self::from_source(ErrorKind::AgentAbsent, error).with_hints(hints)
            }
            DialError::Resolve(_) | DialError::Connect { .. } if error.is_absence() => {
                Self::from_source(ErrorKind::AgentAbsent, error)
                    .hint("start the agent with `gpgconf --launch gpg-agent`")
                    .hint("make sure that gpg-agent.conf doesn't say `extra-socket none`")
            }
            DialError::Resolve(_) | DialError::Connect { .. } => {
                Self::from_source(ErrorKind::NoAgent, error)
            }
        }
    }
}

/// Reads what is at a path; never blocks on a pipe, and never reads a large file.
fn contents(path: &Path) -> io::Result<Contents> {
    match path_kind(path)? {
        PathKind::Socket => return Ok(Contents::Socket),
        PathKind::File => {}
        PathKind::Other => {
            let text = "expected a socket or a socket file, got something else";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    let mut bytes = Vec::with_capacity(MAX_SIZE + 1);
    let limit = u64::try_from(MAX_SIZE + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(Contents::File(Secret::new(bytes)))
}

async fn connect_local(path: &Path) -> Result<(AgentStream, Opening), DialError> {
    loop {
        match LocalStream::connect(path).await.and_then(LocalSocket::new) {
            Ok(stream) => return Ok((AgentStream::Local(stream), Opening::none())),
            // The agent's backlog is full, and no event says when it isn't.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(PAUSE_WHILE_BUSY).await;
            }
            Err(source) => {
                return Err(DialError::Connect { path: path.display().to_string(), source });
            }
        }
    }
}

/// Connects to a port of this machine only, whatever a file says.
async fn connect_tcp(
    port: NonZeroU16,
    path: &impl std::fmt::Display,
) -> Result<AgentStream, DialError> {
    let connect = async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.get())).await?;
        // Requests and answers are small and strictly take turns.
        stream.set_nodelay(true)?;
        Ok(AgentStream::Tcp(stream))
    };
    connect.await.map_err(|source| DialError::Connect { path: path.to_string(), source })
}

/// Our ids for a Cygwin handshake, which has 16 bits for each and checks neither.
fn identity() -> (u16, u16) {
    let short = |id: u32| u16::try_from(id & 0xffff).unwrap_or_default();
    let (user, group) = ids();
    (short(user), short(group))
}
