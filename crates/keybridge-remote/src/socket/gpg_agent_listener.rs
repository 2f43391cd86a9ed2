//! Asking the process that listens at gpg's socket what it is.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::assuan::{LineBuffer, ResponseLine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::Gnupg;
use crate::socket::current_listener::{
    ANSWER_TIME, Activity, CurrentListener, PeerProcess, answers,
};

/// How long an agent may take to end.
const END_TIME: Duration = Duration::from_secs(3);

/// How often that is checked.
const END_POLL: Duration = Duration::from_millis(20);

/// An agent with a thousand keys answers with less.
const ANSWER_LIMIT: usize = 256 * 1024;

/// Finds out what listens at the other end.
pub(crate) async fn identify(stream: UnixStream, gnupg: &Gnupg) -> CurrentListener {
    let mut who = PeerProcess::of(&stream);
    let answer = timeout(ANSWER_TIME, interrogate(stream)).await;
    let answer = answer.map(|answer| {
        answer.map(|(answer, pid)| {
            // gpg-agent listens before it goes to the background: the kernel knows the process
            // that started it.
            if pid.is_some() && !who.is_systemd() {
                who = PeerProcess::with_pid(pid);
            }
            answer
        })
    });
    let what = match answer {
        Ok(Ok(AgentKeys::NoKeys)) if who.is_systemd() => Activity::StartsAgents,
        Ok(Ok(AgentKeys::NoKeys)) if !gnupg.has_secret_keys() => {
            return CurrentListener::AgentWithoutKeys(who);
        }
        Ok(Ok(AgentKeys::NoKeys | AgentKeys::Keys)) => Activity::HasSecretKeys,
        Ok(Ok(AgentKeys::Restricted)) => Activity::IsRestricted,
        Ok(Err(_)) | Err(_) => Activity::IsNoGpgAgent,
    };
    CurrentListener::Alive(who, what, None)
}

/// What a listener says about its keys.
enum AgentKeys {
    NoKeys,
    Keys,
    Restricted,
}

/// Asks for its keys and its pid.
async fn interrogate(stream: UnixStream) -> io::Result<(AgentKeys, Option<i32>)> {
    let mut talk = AssuanConversation::new(stream);
    talk.response().await?;
    // A restricted socket can say that there are no keys when there are.
    if talk.ask(b"GETINFO restricted\n").await?.ok {
        return Ok((AgentKeys::Restricted, None));
    }
    let pid = talk.ask(b"GETINFO pid\n").await?.pid;
    let keys = talk.ask(b"KEYINFO --list\n").await?;
    let answer = match (keys.ok, keys.key) {
        (false, _) => AgentKeys::Restricted,
        (true, true) => AgentKeys::Keys,
        (true, false) => AgentKeys::NoKeys,
    };
    Ok((answer, pid))
}

/// Sends KILLAGENT; returns whether the socket is removed or has no listener any more.
pub(crate) async fn end(path: &Path) -> bool {
    let killed = async {
        let mut talk = AssuanConversation::new(UnixStream::connect(path).await?);
        talk.response().await?;
        talk.ask(b"KILLAGENT\n").await
    };
    match timeout(ANSWER_TIME, killed).await {
        Ok(Ok(response)) if response.ok => {}
        // It can be gone before its answer is read.
        Ok(Ok(_) | Err(_)) | Err(_) => tracing::debug!("unexpected answer to KILLAGENT"),
    }
    let gone = async {
        while answers(path).await {
            sleep(END_POLL).await;
        }
    };
    timeout(END_TIME, gone).await.is_ok()
}

/// A short exchange of commands and responses.
struct AssuanConversation {
    stream: UnixStream,
    lines: LineBuffer,
    unread: Vec<u8>,
}

/// What is kept of a response.
#[derive(Default)]
struct AgentResponse {
    ok: bool,
    /// There was a status line with a key.
    key: bool,
    /// A number as data.
    pid: Option<i32>,
}

impl AssuanConversation {
    fn new(stream: UnixStream) -> Self {
        Self { stream, lines: LineBuffer::default(), unread: Vec::new() }
    }

    async fn ask(&mut self, command: &[u8]) -> io::Result<AgentResponse> {
        self.stream.write_all(command).await?;
        self.response().await
    }

    async fn response(&mut self) -> io::Result<AgentResponse> {
        let mut response = AgentResponse::default();
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
                    Some(ResponseLine::Ok) => return Ok(AgentResponse { ok: true, ..response }),
                    Some(ResponseLine::Err(_)) => return Ok(response),
                    Some(ResponseLine::Inquire) => {
                        return Err(io::Error::other("unexpected inquiry"));
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
