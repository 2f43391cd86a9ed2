//! Finds the socket of the host's gpg-agent and checks that it may be used.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use keybridge_link::{Duplex, pump};
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::{AgentSession, Limits, Session, SessionError};
use tokio::io::Interest;

use super::{AgentDialer, AgentStream};
use crate::checks::Check;
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
                if prove(&mut session, stream).await {
                    Ok(dialer)
                } else {
                    Err(unfit(&dialer, session.error()))
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

/// Drives a session until it would serve a client: its socket is proven to be restricted then. False if
/// it ends before.
async fn prove(session: &mut AgentSession, stream: AgentStream) -> bool {
    let mut client = NoClient { is_served: false };
    pump(&mut client, session, Some(stream), pending(), Duration::ZERO).await;
    client.is_served
}

/// A client that asks for nothing.
struct NoClient {
    is_served: bool,
}

impl Duplex for NoClient {
    fn poll_ready(&mut self, _: Option<Interest>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn try_read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.is_served = true;
        Ok(0)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
}

fn unfit(dialer: &AgentDialer, error: Option<&SessionError>) -> Error {
    let message = format!("can't use gpg-agent at {}", dialer.path().display());
    let failed =
        |kind, why: &str| Error::new(kind, format!("{message}{why}")).at_check(Check::ExtraSocket);
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
