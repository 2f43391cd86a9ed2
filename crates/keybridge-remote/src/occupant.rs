//! Who has the path of the socket, and how it can be had.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::assuan::{LineBuffer, ResponseLine};
use keybridge_proto::printable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::error::{Problem, StartError};
use crate::listening::{is_our_socket, remove};
use crate::quoted::quoted;
use crate::{Gnupg, folder};

/// How long whoever answers may take for all that it is asked.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// How long an agent may take to end.
const END_TIME: Duration = Duration::from_secs(3);

/// How often it is looked whether it has.
const END_POLL: Duration = Duration::from_millis(20);

/// An agent with a thousand keys answers with less.
const ANSWER_LIMIT: usize = 256 * 1024;

/// What is at the path.
#[derive(Debug)]
pub(crate) enum Occupant {
    /// Nothing.
    Nobody,
    /// A socket of ours that nobody listens at.
    Stale,
    /// A gpg-agent of this home without secret keys.
    AgentWithoutKeys(Who),
    /// Something alive that isn't ours to end.
    Alive(Who, &'static str),
    /// Something that isn't ours to remove.
    Foreign(String),
}

/// The process at the other end of a socket.
#[derive(Debug)]
pub(crate) struct Who {
    program: String,
    pid: Option<i32>,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{} (pid {pid})", printable(&self.program)),
            None => f.write_str("a process outside of this target"),
        }
    }
}

impl Who {
    fn of(stream: &UnixStream) -> Self {
        // A process of another namespace has number 0 here.
        Self::with_pid(stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|&pid| pid > 0))
    }

    fn with_pid(pid: Option<i32>) -> Self {
        let comm = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/comm")).ok());
        let program = String::from_utf8_lossy(&comm.unwrap_or_default()).trim().to_owned();
        Self { program: if program.is_empty() { "a process".into() } else { program }, pid }
    }

    /// systemd holds the socket and would start the agent again.
    fn is_systemd(&self) -> bool {
        self.program == "systemd"
    }
}

impl Occupant {
    /// Looks, and changes nothing.
    pub(crate) async fn look(path: &Path, gnupg: &Gnupg) -> Result<Self, StartError> {
        let metadata = match std::fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nobody),
            Err(error) => return Err(StartError::io("looking at", path, &error)),
        };
        if !is_our_socket(&metadata) {
            use std::os::unix::fs::{FileTypeExt, MetadataExt};
            let what = if metadata.file_type().is_socket() {
                let (owner, euid) = (metadata.uid(), folder::euid());
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
                let who = Who { program: "a process".into(), pid: None };
                return Ok(Self::Alive(who, "takes no connection"));
            }
        };
        let mut who = Who::of(&stream);
        let answer = timeout(ANSWER_TIME, interrogate(stream)).await;
        let answer = answer.map(|answer| {
            answer.map(|(answer, pid)| {
                // gpg-agent listens before it goes to the background: the kernel knows the process
                // that started it.
                if pid.is_some() && !who.is_systemd() {
                    who = Who::with_pid(pid);
                }
                answer
            })
        });
        Ok(match answer {
            Ok(Ok(Answer::NoKeys)) if who.is_systemd() => {
                Self::Alive(who, "starts a gpg-agent for every client")
            }
            Ok(Ok(Answer::NoKeys)) if gnupg.has_secret_keys() => {
                Self::Alive(who, "is a gpg-agent with secret keys")
            }
            Ok(Ok(Answer::NoKeys)) => Self::AgentWithoutKeys(who),
            Ok(Ok(Answer::Keys)) => Self::Alive(who, "is a gpg-agent with secret keys"),
            Ok(Ok(Answer::Restricted)) => {
                Self::Alive(who, "is another bridge or a forwarded socket")
            }
            Ok(Err(_)) | Err(_) => Self::Alive(who, "doesn't answer like a gpg-agent"),
        })
    }

    /// Why the path can't be had, if it can't.
    pub(crate) fn refusal(&self, path: &Path, replace: bool) -> Option<StartError> {
        let shown = path.display();
        match self {
            Self::Nobody | Self::Stale | Self::AgentWithoutKeys(_) => None,
            Self::Alive(..) if replace => None,
            Self::Alive(who, what) => {
                let message = format!("{shown} is in use: {who} {what}");
                let problem =
                    Problem::new(message).hint("stop it, or take its place with --replace");
                Some(StartError::InUse(if who.is_systemd() {
                    problem.hint("systemctl --user mask --now gpg-agent.socket")
                } else {
                    problem
                }))
            }
            Self::Foreign(what) => {
                let problem = Problem::new(format!("{shown} is {what}"))
                    .hint(format!("move it away if it isn't needed: {}", quoted(path)));
                Some(StartError::NotPermitted(problem))
            }
        }
    }

    /// Makes the path free. An agent without keys is asked to end; only a socket of ours is removed.
    pub(crate) async fn make_way(&self, path: &Path, replace: bool) -> Result<(), StartError> {
        if let Some(refusal) = self.refusal(path, replace) {
            return Err(refusal);
        }
        if let Self::AgentWithoutKeys(who) = self {
            tracing::info!("asking {who}, which has no secret keys, to end");
            if !end_agent(path).await && !replace {
                let message = format!("{} is in use: {who} doesn't end", path.display());
                let problem = Problem::new(message).hint("gpgconf --kill gpg-agent");
                return Err(StartError::InUse(problem));
            }
        }
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if is_our_socket(&metadata) => {
                // Somebody may have come since it was looked at.
                if !replace && answers(path).await {
                    let message = format!("{} is in use since this moment", path.display());
                    return Err(StartError::InUse(Problem::new(message).hint("try again")));
                }
                remove(path).map_err(|error| StartError::io("removing", path, &error))
            }
            // Nothing, or something that came this moment: binding tells.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// What a socket said for itself.
enum Answer {
    NoKeys,
    Keys,
    Restricted,
}

/// Asks what it is, and for its own word on its pid.
async fn interrogate(stream: UnixStream) -> io::Result<(Answer, Option<i32>)> {
    let mut talk = Talk::new(stream);
    talk.response().await?;
    // A restricted socket can say that there are no keys when there are.
    if talk.ask(b"GETINFO restricted\n").await?.ok {
        return Ok((Answer::Restricted, None));
    }
    let pid = talk.ask(b"GETINFO pid\n").await?.pid;
    let keys = talk.ask(b"KEYINFO --list\n").await?;
    let answer = match (keys.ok, keys.key) {
        (false, _) => Answer::Restricted,
        (true, true) => Answer::Keys,
        (true, false) => Answer::NoKeys,
    };
    Ok((answer, pid))
}

/// Sends KILLAGENT, and says whether the socket went or nobody listens there any more.
async fn end_agent(path: &Path) -> bool {
    let killed = async {
        let mut talk = Talk::new(UnixStream::connect(path).await?);
        talk.response().await?;
        talk.ask(b"KILLAGENT\n").await
    };
    match timeout(ANSWER_TIME, killed).await {
        Ok(Ok(response)) if response.ok => {}
        // It can be gone before its answer is read.
        Ok(Ok(_) | Err(_)) | Err(_) => tracing::debug!("no good answer to KILLAGENT"),
    }
    let gone = async {
        while answers(path).await {
            sleep(END_POLL).await;
        }
    };
    timeout(END_TIME, gone).await.is_ok()
}

async fn answers(path: &Path) -> bool {
    UnixStream::connect(path).await.is_ok()
}

/// A short talk with whoever listens.
struct Talk {
    stream: UnixStream,
    lines: LineBuffer,
    unread: Vec<u8>,
}

/// What counts of a response.
#[derive(Default)]
struct Response {
    ok: bool,
    /// There was a status line with a key.
    key: bool,
    /// A number as data.
    pid: Option<i32>,
}

impl Talk {
    fn new(stream: UnixStream) -> Self {
        Self { stream, lines: LineBuffer::default(), unread: Vec::new() }
    }

    async fn ask(&mut self, command: &[u8]) -> io::Result<Response> {
        self.stream.write_all(command).await?;
        self.response().await
    }

    async fn response(&mut self) -> io::Result<Response> {
        let mut response = Response::default();
        let mut size = 0;
        let mut buffer = [0; 1024];
        loop {
            while !self.unread.is_empty() {
                let cut = self.lines.cut(&self.unread).map_err(io::Error::other)?;
                let taken = cut.taken;
                let kind = cut.line.map(|line| {
                    response.key |= line.starts_with(b"S KEYINFO ");
                    response.pid = response.pid.or_else(|| parse_pid(line));
                    ResponseLine::parse(line)
                });
                self.unread.drain(..taken);
                match kind.transpose().map_err(io::Error::other)? {
                    Some(ResponseLine::Ok) => return Ok(Response { ok: true, ..response }),
                    Some(ResponseLine::Err(_)) => return Ok(response),
                    Some(ResponseLine::Inquire) => {
                        return Err(io::Error::other("an inquiry that wasn't asked for"));
                    }
                    Some(
                        ResponseLine::Status
                        | ResponseLine::Data
                        | ResponseLine::End
                        | ResponseLine::Comment
                        | ResponseLine::Blank,
                    )
                    | None => {}
                }
            }
            let count = self.stream.read(&mut buffer).await?;
            size += count;
            if count == 0 || size > ANSWER_LIMIT {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
    }
}

fn parse_pid(line: &[u8]) -> Option<i32> {
    let number = std::str::from_utf8(line.strip_prefix(b"D ")?).ok()?;
    number.trim_end().parse().ok().filter(|&pid| pid > 0)
}
