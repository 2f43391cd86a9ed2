//! Finds and dials the user's ssh-agent.
//!
//! | place | searched |
//! |---|---|
//! | the setting | alone, if it is set |
//! | `SSH_AUTH_SOCK` of the last `up` | first |
//! | `IdentityAgent` of ssh's configuration | then |
//! | the pipe of OpenSSH's service, and then Pageant's | then, on Windows |
//! | the ssh socket of gpg-agent | last, unless the configuration says `IdentityAgent none` |
//!
//! The first that accepts a connection is used. Each connection repeats the search, but programs run at
//! most once every two seconds, whatever a target does.
//!
//! While a dialog is open or a token waits for a touch, OpenSSH's agent answers no client at all, on the
//! host or in a target. gpg-agent in its place does, and the gpg lane isn't affected.

pub(crate) mod destinations;
mod identity_agent;
mod key_list;
mod search;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::Duplex;
use keybridge_proto::session::Limits;
use keybridge_proto::socket_file::{Opening, Step};
use tokio::sync::Mutex;

use crate::agent::{AgentDialer, AgentStream};
use crate::checks::Check;
use crate::gnupg::Gnupg;
use crate::platform::{System, file_id, pageant_pipe};
use crate::{Error, ErrorKind, Result};
pub use destinations::{LimitedKeys, OpenSshVersion};
use identity_agent::IdentityAgent;
pub use key_list::KeyList;
pub use search::{Attempt, NoSshAgent, Outcome, Place};

/// How long a program's answer is reused: a target can open a thousand streams a second.
const FRESH: Duration = Duration::from_secs(2);

/// Where the user's ssh-agent is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPlaces {
    /// The socket that the user's setting names. If it is set, nowhere else is searched.
    pub setting: Option<PathBuf>,
    /// The value of `SSH_AUTH_SOCK`, at first.
    pub auth_sock: Option<PathBuf>,
    /// The program `ssh`, by path or by name.
    pub ssh: PathBuf,
    /// The GnuPG whose agent may speak ssh-agent's protocol.
    pub gnupg: Option<Gnupg>,
}

/// Dials the user's ssh-agent. Cheap to clone; the clones are one.
#[derive(Debug, Clone)]
pub struct SshDialer(Rc<Dialer>);

#[derive(Debug)]
struct Dialer {
    places: SshPlaces,
    auth_sock: RefCell<Option<PathBuf>>,
    own_socket: RefCell<Option<PathBuf>>,
    identity_agent: LastAnswer<(Option<PathBuf>, IdentityAgent)>,
    gpg_socket: LastAnswer<std::result::Result<Option<PathBuf>, String>>,
    /// What was found last: only a change is logged.
    last: RefCell<Option<String>>,
    /// Whether there has been an agent.
    has_found: Cell<bool>,
}

/// A program's last answer, and when it came. Locked while the program runs, so that all who wait share
/// one run.
type LastAnswer<T> = Mutex<Option<(Instant, T)>>;

/// The agent that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSshAgent {
    /// Where it was found.
    pub place: Place,
    /// Its socket.
    pub path: PathBuf,
}

impl fmt::Display for FoundSshAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.place)
    }
}

impl SshPlaces {
    /// The usual places, with `SSH_AUTH_SOCK` of this process.
    pub fn new(gnupg: Option<Gnupg>) -> Self {
        let auth_sock = std::env::var_os("SSH_AUTH_SOCK").filter(|value| !value.is_empty());
        Self { setting: None, auth_sock: auth_sock.map(PathBuf::from), ssh: "ssh".into(), gnupg }
    }
}

impl SshDialer {
    /// A dialer that searches these places for each connection.
    pub fn new(places: SshPlaces) -> Self {
        let auth_sock = RefCell::new(places.auth_sock.clone());
        Self(Rc::new(Dialer {
            places,
            auth_sock,
            own_socket: RefCell::default(),
            identity_agent: Mutex::default(),
            gpg_socket: Mutex::default(),
            last: RefCell::default(),
            has_found: Cell::default(),
        }))
    }

    /// Sets `SSH_AUTH_SOCK` for later connections.
    pub fn set_auth_sock(&self, path: Option<PathBuf>) {
        *self.0.auth_sock.borrow_mut() = path.filter(|path| !path.as_os_str().is_empty());
    }

    /// Sets the path of the bridge's own socket, which would ask itself without end: it isn't dialled,
    /// whatever path leads there.
    pub fn set_own_socket(&self, path: PathBuf) {
        *self.0.own_socket.borrow_mut() = Some(path);
    }

    /// Finds the agent and lists its keys.
    pub async fn find(&self) -> Result<(FoundSshAgent, KeyList)> {
        let limit = Limits::default().connect;
        let asking = async {
            let (mut stream, found) = self.look().await?;
            let keys = KeyList::ask(&mut stream).await.map_err(|error| {
                let message = format!("can't list the keys of the ssh-agent {found}");
                Error::new(ErrorKind::NoAgent, message)
                    .caused_by(error)
                    .hint("check what `ssh-add -l` prints on the host")
            })?;
            Ok((found, keys))
        };
        let found = tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| {
            let text = format!("the ssh-agent doesn't answer within {} s", limit.as_secs());
            Err(Error::new(ErrorKind::NoAgent, text).hint(
                "look for an open dialog on the host: ssh-agent answers nothing else meanwhile",
            ))
        });
        found.map_err(|error| error.at_check(Check::SshAgent))
    }

    /// Whether there has been an agent at all.
    pub(crate) fn has_found(&self) -> bool {
        self.0.has_found.get()
    }

    /// Whether an agent answers at a path, and not one of our own bridges.
    pub(crate) async fn answers_at(&self, path: &Path) -> bool {
        let asking = async {
            let mut stream = self.connect(path).await.ok()?;
            KeyList::ask(&mut stream).await.ok()
        };
        let answer = tokio::time::timeout(Limits::default().connect, asking).await;
        answer.is_ok_and(|keys| keys.is_some())
    }

    /// Connects to the agent. Waits while the agent's backlog is full, so the caller sets a time limit.
    /// Safe to cancel.
    pub async fn dial(&self) -> Result<AgentStream, NoSshAgent> {
        self.look().await.map(|(stream, _)| stream)
    }

    async fn look(&self) -> Result<(AgentStream, FoundSshAgent), NoSshAgent> {
        let result = self.look_in_order().await;
        let news = match &result {
            Ok((_, found)) => {
                self.0.has_found.set(true);
                found.to_string()
            }
            Err(nobody) => nobody.to_string(),
        };
        let mut last = self.0.last.borrow_mut();
        if last.as_ref() != Some(&news) {
            tracing::info!("the ssh-agent: {news}");
            *last = Some(news);
        }
        result
    }

    async fn look_in_order(&self) -> Result<(AgentStream, FoundSshAgent), NoSshAgent> {
        let mut attempts = Vec::new();
        for place in Place::of(System::here()) {
            let outcome = match self.path(place).await {
                Ok(path) => match self.connect(&path).await {
                    Ok(stream) => return Ok((stream, FoundSshAgent { place, path })),
                    Err(outcome) => outcome,
                },
                Err(outcome) => outcome,
            };
            let is_last_word = outcome.is_last_word(place);
            attempts.push(Attempt { place, outcome });
            if is_last_word {
                break;
            }
        }
        Err(NoSshAgent { attempts })
    }

    /// The socket path that a place names.
    async fn path(&self, place: Place) -> Result<PathBuf, Outcome> {
        let places = &self.0.places;
        let auth_sock = || self.0.auth_sock.borrow().clone();
        match place {
            Place::Setting => places.setting.clone().ok_or(Outcome::NotSet),
            Place::AuthSock => auth_sock().ok_or(Outcome::NotSet),
            Place::IdentityAgent => match self.identity_agent(auth_sock()).await {
                IdentityAgent::NotSet | IdentityAgent::AuthSock => Err(Outcome::NotSet),
                IdentityAgent::None => Err(Outcome::None),
                IdentityAgent::Path(path) => Ok(path),
                IdentityAgent::Unknown(problem) => Err(Outcome::Unknown(problem)),
            },
            Place::OpenSsh => System::here().openssh_pipe.map(PathBuf::from).ok_or(Outcome::NotSet),
            Place::Pageant => pageant_pipe().ok_or(Outcome::NotSet),
            Place::GpgAgent => {
                let gnupg = places.gnupg.as_ref().ok_or(Outcome::NotSet)?;
                self.gpg_socket(gnupg).await.map_err(Outcome::Unknown)?.ok_or(Outcome::NotSet)
            }
        }
    }

    async fn identity_agent(&self, auth_sock: Option<PathBuf>) -> IdentityAgent {
        let mut last = self.0.identity_agent.lock().await;
        match &*last {
            // ssh may have derived the path from the variable.
            Some((at, (with, answer))) if at.elapsed() < FRESH && *with == auth_sock => {
                answer.clone()
            }
            Some(_) | None => {
                let answer = IdentityAgent::ask(&self.0.places.ssh, auth_sock.as_deref()).await;
                *last = Some((Instant::now(), (auth_sock, answer.clone())));
                answer
            }
        }
    }

    async fn gpg_socket(&self, gnupg: &Gnupg) -> std::result::Result<Option<PathBuf>, String> {
        let mut last = self.0.gpg_socket.lock().await;
        match &*last {
            Some((at, answer)) if at.elapsed() < FRESH => answer.clone(),
            Some(_) | None => {
                let answer = find_gpg_socket(gnupg).await.map_err(|error| error.to_string());
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    }

    async fn connect(&self, path: &Path) -> Result<AgentStream, Outcome> {
        if self.0.own_socket.borrow().as_ref().is_some_and(|own| leads_to(path, own)) {
            return Err(Outcome::Ours(path.to_owned()));
        }
        let unreachable = |problem| Outcome::Unreachable(path.to_owned(), problem);
        let dialled = AgentDialer::at(path).dial().await;
        let (mut stream, opening) = dialled.map_err(|error| unreachable(error.cause()))?;
        open(&mut stream, opening).await.map_err(|error| unreachable(error.to_string()))?;
        Ok(stream)
    }
}

impl PartialEq for SshDialer {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SshDialer {}

/// Whether a path leads to a socket now. Its own path does even before the socket exists.
fn leads_to(path: &Path, socket: &Path) -> bool {
    path == socket || file_id(path).is_some_and(|there| file_id(socket) == Some(there))
}

/// gpg-agent's ssh socket, if ssh support is switched on.
async fn find_gpg_socket(gnupg: &Gnupg) -> Result<Option<PathBuf>> {
    if gnupg.is_ssh_agent().await? { Ok(gnupg.dirs().await?.ssh_socket) } else { Ok(None) }
}

/// Performs the handshake of a TCP socket; a Unix socket has none.
pub(crate) async fn open(stream: &mut AgentStream, mut opening: Opening) -> io::Result<()> {
    loop {
        match opening.step() {
            Step::Send(bytes) => stream.send_all(bytes.expose()).await?,
            Step::Receive(count) => {
                let bytes = stream.receive_exact(count).await?;
                opening.received(&bytes).map_err(io::Error::other)?;
            }
            Step::Done => return Ok(()),
        }
    }
}

crate::platform::tests_on_unix! {
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_known_by_any_path_that_leads_to_it() {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;

        let dir = tempfile::tempdir().unwrap();
        let file = |name| dir.path().join(name);
        let (socket, link, hard, other) = (file("s"), file("l"), file("h"), file("o"));
        assert!(leads_to(&socket, &socket), "before it is bound");
        assert!(!leads_to(&other, &socket));

        let _bound = UnixListener::bind(&socket).unwrap();
        let _another = UnixListener::bind(&other).unwrap();
        symlink(&socket, &link).unwrap();
        std::fs::hard_link(&socket, &hard).unwrap();
        std::fs::create_dir(file("d")).unwrap();
        for path in [&socket, &link, &hard, &file("d/../s")] {
            assert!(leads_to(path, &socket), "{}", path.display());
        }
        assert!(!leads_to(&other, &socket) && !leads_to(&file("nothing"), &socket));
    }
}
}
