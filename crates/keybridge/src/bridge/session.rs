//! One client in the target, and its own connection to the agent of its lane.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use keybridge_link::{Duplex, Stream, pump, reach};
use keybridge_proto::Lane;
use keybridge_proto::gate::Policy;
use keybridge_proto::git::Answer;
use keybridge_proto::session::{AgentSession, Limits, Session};
use keybridge_proto::ssh::SshSession;
use tokio::io::Interest;
use tokio::time::{sleep, timeout};

use super::stats::LaneCounter;
use crate::agent::{AgentDialer, AgentStream};
use crate::git::{self, GitSigner, RequestRoom};
use crate::ssh_agent::{KeyList, SshDialer};

/// How long a client may take to read what is left for it when its session ends.
const LINGER: Duration = Duration::from_secs(10);

/// Serves one client of the gpg lane from its first byte to its end. Clients share nothing here.
pub(super) async fn serve(
    stream: Stream,
    mut session: AgentSession,
    dialer: Option<&AgentDialer>,
    counter: &LaneCounter,
) {
    let mut client = Client { stream, counter };
    session.connect_requested(Instant::now());
    let agent = if let Some(dialer) = dialer {
        let deadline = session.deadline();
        let reached = reach(&mut client, &mut session, deadline, dialer.dial()).await;
        reached.map(|(socket, opening)| {
            session.agent_connected(opening, Instant::now());
            socket
        })
    } else {
        session.agent_unreachable("no gpg-agent is lent");
        None
    };
    carry(client, session, agent).await;
}

/// Serves one client of the ssh lane. Without an agent, each of its requests is refused.
pub(super) async fn serve_ssh(
    stream: Stream,
    mut session: SshSession,
    dialer: Option<&SshDialer>,
    counter: &LaneCounter,
) {
    let mut client = Client { stream, counter };
    session.connect_requested(Instant::now());
    let agent = if let Some(dialer) = dialer {
        connect_ssh(&mut client, &mut session, dialer).await
    } else {
        session.agent_unreachable("no ssh-agent is lent");
        None
    };
    carry(client, session, agent).await;
}

/// Serves one client of the git lane.
pub(super) async fn serve_git(
    stream: Stream,
    signer: Option<&GitSigner>,
    room: &RequestRoom,
    counter: &LaneCounter,
) {
    match signer {
        Some(signer) => {
            let (took_in, gave_out) =
                (|count| counter.took_in(count), |count| counter.gave_out(count));
            git::serve(stream, signer, room, took_in, gave_out).await;
        }
        None => git::refuse(stream, Answer::Failed("the git lane isn't lent".to_owned())).await,
    }
}

/// Connects to the agent, and has it list its keys if some are chosen by their comments, to resolve
/// these. This happens before anything is read from the client, so that the client can't influence it.
async fn connect_ssh(
    client: &mut Client<'_>,
    session: &mut SshSession,
    dialer: &SshDialer,
) -> Option<AgentStream> {
    let deadline = session.deadline();
    let mut agent = reach(client, session, deadline, dialer.dial()).await?;
    if session.keys().has_comments() {
        // A person may be asked meanwhile, so this has its own limit.
        let limit = session.limits().response.unwrap_or(Duration::MAX);
        let listing = async {
            match timeout(limit, KeyList::ask(&mut agent)).await {
                Ok(asked) => asked.map_err(|error| error.to_string()),
                Err(_) => Err("it doesn't list its keys in time".to_owned()),
            }
        };
        let list = reach(client, session, None, listing).await?;
        session.choose_keys(&list.identities());
    }
    session.agent_connected();
    Some(agent)
}

/// Moves the bytes of a session until it is over.
async fn carry(mut client: Client<'_>, mut session: impl Session, agent: Option<AgentStream>) {
    if let Some(left) = pump(&mut client, &mut session, agent, pending(), LINGER).await {
        tokio::task::spawn_local(left.ended());
    }
    let state = session.state();
    match session.error() {
        Some(error) if client.counter.may_warn(Instant::now()) => {
            tracing::info!(%error, ?state, "a session failed");
        }
        Some(error) => tracing::debug!(%error, ?state, "a session failed"),
        None => tracing::debug!(?state, "the session ended"),
    }
}

/// Refuses a client that is one too many. One of the ssh lane has to ask something first.
pub(super) async fn refuse(mut client: Stream, lane: Lane) {
    let (policy, limits) = (Policy::default(), Limits::default());
    let patience = sleep(LINGER);
    match lane {
        Lane::Gpg => {
            let mut session = AgentSession::new(policy, Arc::default(), limits);
            session.connect_requested(Instant::now());
            session.refuse();
            pump(&mut client, &mut session, None::<AgentStream>, patience, LINGER).await;
        }
        Lane::Git => git::refuse(client, Answer::Busy).await,
        Lane::Ssh => {
            let mut session = SshSession::new(policy, limits);
            session.connect_requested(Instant::now());
            session.agent_unreachable("too many clients are connected");
            pump(&mut client, &mut session, None::<AgentStream>, patience, LINGER).await;
        }
    }
}

/// A client's stream, whose bytes are counted.
struct Client<'a> {
    stream: Stream,
    counter: &'a LaneCounter,
}

impl Duplex for Client<'_> {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.poll_ready(wants, context)
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.try_read(buffer).inspect(|&count| self.counter.took_in(count))
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.try_write(bytes).inspect(|&count| self.counter.gave_out(count))
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown()
    }

    fn hung_up(&self) -> bool {
        self.stream.hung_up()
    }
}
