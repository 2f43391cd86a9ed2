//! Finds the socket of the host's gpg-agent and checks that it may be used.

use std::sync::Arc;
use std::time::Instant;

use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::agent::State;
use keybridge_proto::session::{AgentSession, Limits, Session, SessionError};

use super::{AgentConnection, AgentDialer, AgentStream};
use crate::gnupg::Gnupg;
use crate::{Error, ErrorKind, Result};

impl AgentDialer {
    /// Finds the socket of this kind, starting the agent if it isn't running, and checks that it is
    /// restricted as it has to be. Each session checks that again.
    pub async fn find(gnupg: Gnupg, socket: AgentSocket) -> Result<Self> {
        let dirs = gnupg.dirs().await?;
        let path = match socket {
            AgentSocket::Extra => dirs.extra_socket,
            AgentSocket::Main => dirs.agent_socket,
        };
        let dialer = Self::new(path, Some(gnupg));
        let limit = Limits::default().connect;
        let dialled = tokio::time::timeout(limit, dialer.dial()).await.map_err(|_| {
            let path = dialer.path().display();
            let limit = limit.as_secs();
            let message = format!("gpg-agent at {path} accepts no connection within {limit} s");
            Error::new(ErrorKind::NoAgent, message)
                .hint("`gpgconf --kill gpg-agent` ends an agent that hangs")
        })?;
        match dialled {
            Ok((stream, opening)) => {
                let mut session = new_session(socket);
                session.agent_connected(opening, Instant::now());
                prove(&mut session, stream).await;
                match session.state() {
                    State::Ready => Ok(dialer),
                    _ => Err(unfit(&dialer, session.error())),
                }
            }
            Err(error) if dirs.home.is_dir() => Err(error.into()),
            // GnuPG's own error doesn't name the missing folder.
            Err(_) => {
                let home = dirs.home.display();
                Err(Error::new(ErrorKind::NoAgent, format!("the GnuPG home {home} doesn't exist"))
                    .hint("check --gnupg-home and GNUPGHOME, or make a key with `gpg --quick-gen-key`"))
            }
        }
    }
}

fn new_session(socket: AgentSocket) -> AgentSession {
    let policy = Policy { socket, ..Policy::default() };
    let mut session = AgentSession::new(policy, Arc::default(), Limits::default());
    session.connect_requested(Instant::now());
    session
}

/// Drives a session until the socket is proven to be restricted, or the session fails.
async fn prove(session: &mut AgentSession, stream: AgentStream) {
    let mut agent = AgentConnection::new(stream);
    // The session has something for its client when it is decided: the greeting or a refusal.
    while session.to_client().is_empty() && session.deadline().is_some() {
        let now = Instant::now();
        session.timeout(now);
        if agent.pump(session, now) {
            continue;
        }
        let waiting = agent.waits_for(session);
        let deadline = session.deadline().unwrap_or(now);
        let _ = tokio::time::timeout_at(deadline.into(), agent.ready(waiting)).await;
    }
}

fn unfit(dialer: &AgentDialer, error: Option<&SessionError>) -> Error {
    let message = format!("can't use gpg-agent at {}", dialer.path().display());
    let failed =
        |kind, why: &str| Error::new(kind, format!("{message}{why}")).at_check("extra-socket");
    let restart = "restart the agent with `gpgconf --kill gpg-agent`";
    match error {
        Some(error @ SessionError::NotRestricted) => failed(ErrorKind::Failed, "")
            .caused_by(error.clone())
            .hint(format!("{restart}; it then creates its sockets again"))
            .hint("--socket main uses the unrestricted socket, which keybridge then restricts"),
        Some(error) => failed(ErrorKind::NoAgent, "").caused_by(error.clone()).hint(restart),
        None => failed(ErrorKind::NoAgent, ": it closed the connection").hint(restart),
    }
}
