//! Dials an agent by the path of its socket, whatever stands there.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

#[cfg(unix)]
use keybridge_link::UnixSocket;
use keybridge_proto::Secret;
use keybridge_proto::socket_file::{
    AgentAddress, Contents, MAX_SIZE, Opening, ResolveError, resolve,
};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::AgentStream;
use crate::gnupg::Gnupg;
use crate::{Error, ErrorKind};

/// An agent that could not be started is not started for each client again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// How often a socket is tried whose queue of connections is full.
const PAUSE_WHILE_BUSY: Duration = Duration::from_millis(5);

/// Dials one agent. Cheap to clone; the clones share the starting of the agent.
#[derive(Debug, Clone)]
pub struct AgentDialer(Rc<Dialer>);

#[derive(Debug)]
struct Dialer {
    path: PathBuf,
    /// What starts the agent, if it may be started.
    gnupg: Option<Gnupg>,
    /// When starting it failed last. Held while it is being started, so that it is once for all
    /// who wait.
    failed: Mutex<Option<Instant>>,
}

/// Why an agent could not be dialled.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// What stands at the path leads nowhere.
    #[error("{error}{cause}", error = .0, cause = cause(.0))]
    Resolve(#[from] ResolveError),
    /// Nobody answers there.
    #[error("connecting to {path}: {source}")]
    Connect {
        /// The path that was dialled.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The agent isn't running and could not be started.
    #[error("gpg-agent isn't running, and starting it failed: {0}")]
    Launch(Error),
}

impl AgentDialer {
    /// Dials what stands at `path`, and starts nothing.
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

    /// Connects, and starts the agent once if nobody is there. What the path holds is read anew:
    /// a restarted agent has another port and nonce. Waits as long as the agent's queue is full, so
    /// the caller sets a limit. It may be cancelled.
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
        let endpoint = resolve(&self.0.path, look, |name| std::env::var_os(name))?;
        let path = self.0.path.display();
        match endpoint {
            AgentAddress::Unix(path) => connect_unix(&path).await,
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

/// What is behind an error, to follow it in one line.
fn cause(error: &ResolveError) -> String {
    std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default()
}

impl DialError {
    /// What is wrong, without the path.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Resolve(ResolveError::Read { source, .. }) | Self::Connect { source, .. } => {
                source.to_string()
            }
            Self::Resolve(_) | Self::Launch(_) => self.to_string(),
        }
    }

    /// Whether nobody is there, so that starting the agent can help.
    pub fn is_absence(&self) -> bool {
        let error = match self {
            Self::Resolve(ResolveError::Read { source, .. }) | Self::Connect { source, .. } => {
                source
            }
            Self::Resolve(_) | Self::Launch(_) => return false,
        };
        // A reset before the first byte is an agent that went away while we stood in its queue.
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
        let absent = error.is_absence();
        let text = error.to_string();
        match error {
            DialError::Launch(cause) => {
                let error = Self::new(ErrorKind::NoAgent, text);
                cause.hints.into_iter().fold(error, Self::hint)
            }
            DialError::Resolve(_) | DialError::Connect { .. } if absent => {
                Self::new(ErrorKind::NoAgent, text)
                    .hint("start the agent with `gpgconf --launch gpg-agent`")
                    .hint("see that gpg-agent.conf doesn't say `extra-socket none`")
            }
            DialError::Resolve(_) | DialError::Connect { .. } => {
                Self::new(ErrorKind::NoAgent, text)
            }
        }
    }
}

/// What stands at a path, without waiting on a pipe or reading a large file.
fn look(path: &Path) -> io::Result<Contents> {
    let kind = fs::metadata(path)?.file_type();
    if is_socket(kind) {
        return Ok(Contents::Socket);
    }
    if !kind.is_file() {
        let text = "expected a socket or a socket file, got something else";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut bytes = Vec::with_capacity(MAX_SIZE + 1);
    let limit = u64::try_from(MAX_SIZE + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(Contents::File(Secret::new(bytes)))
}

#[cfg(unix)]
fn is_socket(kind: fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_socket()
}

#[cfg(not(unix))]
fn is_socket(_: fs::FileType) -> bool {
    false
}

#[cfg(unix)]
async fn connect_unix(path: &Path) -> Result<(AgentStream, Opening), DialError> {
    loop {
        match UnixStream::connect(path).await.and_then(UnixSocket::new) {
            Ok(stream) => return Ok((AgentStream::Unix(stream), Opening::none())),
            // The agent's queue of connections is full, and there is nothing to wait on.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(PAUSE_WHILE_BUSY).await;
            }
            Err(source) => {
                return Err(DialError::Connect { path: path.display().to_string(), source });
            }
        }
    }
}

#[cfg(not(unix))]
async fn connect_unix(path: &Path) -> Result<(AgentStream, Opening), DialError> {
    let source = io::ErrorKind::Unsupported.into();
    Err(DialError::Connect { path: path.display().to_string(), source })
}

/// Connects to this machine alone, whatever a file says.
async fn connect_tcp(
    port: NonZeroU16,
    path: &impl std::fmt::Display,
) -> Result<AgentStream, DialError> {
    let connect = async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.get())).await?;
        // Requests and answers are small, and each waits for the other.
        stream.set_nodelay(true)?;
        Ok(AgentStream::Tcp(stream))
    };
    connect.await.map_err(|source| DialError::Connect { path: path.to_string(), source })
}

/// Who we are in a Cygwin handshake, where nothing depends on it and sixteen bits are all there is.
#[cfg(unix)]
fn identity() -> (u16, u16) {
    let short = |id: u32| u16::try_from(id & 0xffff).unwrap_or_default();
    (short(rustix::process::getuid().as_raw()), short(rustix::process::getgid().as_raw()))
}

#[cfg(not(unix))]
fn identity() -> (u16, u16) {
    (0, 0)
}
