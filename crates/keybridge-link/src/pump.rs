//! Moves the bytes of a session between its client and its agent.
//!
//! ```text
//!   reach ──► exchange until the session is over ──► end the agent's side ──► farewell
//! ```
//!
//! - The session learns of a half close once it has taken everything before it, and what was asked is
//!   still answered. A hang-up ends the session at once, and with it the agent's dialog.
//! - Nothing is read that the session doesn't take, so a flood waits with its sender. A session that
//!   always finds something to move lets the other tasks of its thread run in between.
//! - The session learns of an agent that ends once its last bytes were read and given to the client,
//!   which may take its time.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::io;
use std::ops::DerefMut;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use keybridge_proto::session::{LeftOperation, Session};
use tokio::io::Interest;
use tokio::time::{sleep_until, timeout_at};

use crate::{Duplex, is_transient, now};

/// The size of a read: many lines. At most that much of each side is held that the session doesn't
/// take.
const READ_SIZE: usize = 16 * 1024;

/// How often bytes are moved before other tasks get their turn: about 256 KiB.
const ROUNDS: usize = 16;

/// Waits for an agent to be reached, until a deadline, while the client stays. `None` if the session
/// goes on without one, or is over.
pub async fn reach<T, E: Display>(
    client: &mut impl Duplex,
    session: &mut impl Session,
    deadline: Option<Instant>,
    dial: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    tokio::select! {
        dialled = dial => match dialled {
            Ok(dialled) => return Some(dialled),
            Err(error) => {
                tracing::debug!(%error, "the agent can't be reached");
                session.agent_unreachable(error.to_string());
            }
        },
        () = hang_up(client) => session.client_closed(false),
        () = until(deadline) => session.timeout(now()),
    }
    None
}

/// Moves the bytes of a session until it is over or stopped, and cleans up. The client has `linger` to
/// read what is left for it then. Gives back what the agent may still work on.
pub async fn pump<A: Duplex>(
    client: &mut impl Duplex,
    session: &mut impl Session,
    agent: Option<A>,
    stop: impl Future<Output = ()>,
    linger: Duration,
) -> Option<LeftWork<A>> {
    let mut agent = agent.map(Box::new).map(Side::new);
    let is_stopped = tokio::select! {
        () = stop => true,
        () = converse(client, session, &mut agent) => false,
    };
    if is_stopped {
        session.agent_closed(false);
    }
    // This ends the agent's connection: a pinentry must not wait for a slow client.
    let left = agent.and_then(|mut agent| {
        let operation = session.left_operation()?;
        agent.duplex.end_output().ok()?;
        Some(LeftWork { agent: agent.duplex, operation })
    });
    let ending = session.cleanup();
    debug_assert!(ending.is_some(), "a session that is over has something to clean up");
    let outcome = farewell(client, session, linger).await;
    session.cleanup_done(outcome);
    left
}

/// An operation that an agent may still work on though its client is gone. Some agents close its dialog then,
/// and some show it until it is answered; OpenSSH's shows also those that have waited for others.
#[derive(Debug)]
pub struct LeftWork<A> {
    agent: Box<A>,
    operation: LeftOperation,
}

/// How long an agent may take for it. A pinentry gives up after a minute, but shows one dialog at a time.
const LEFT_WORK_TIME: Duration = Duration::from_mins(5);

impl<A: Duplex> LeftWork<A> {
    /// Waits until the agent answers, or ends the connection. The operation keeps its turn meanwhile, so that a
    /// target which hangs up and asks again lines up no dialogs.
    pub async fn ended(self) {
        let Self { mut agent, operation } = self;
        let mut answer = [0; 64];
        let count = tokio::time::timeout(LEFT_WORK_TIME, agent.receive(&mut answer)).await;
        let count = count.ok().and_then(io::Result::ok).unwrap_or_default();
        operation.answered(answer.get(..count).unwrap_or_default(), now());
    }
}

/// Sends the client what is left for it, and waits until it has read that and its connection is closed.
async fn farewell(
    client: &mut impl Duplex,
    session: &mut impl Session,
    linger: Duration,
) -> Result<(), FarewellError> {
    let deadline = tokio::time::Instant::now() + linger;
    let sent = match timeout_at(deadline, send_rest(client, session)).await {
        Ok(result) => result.map_err(FarewellError::Io),
        Err(_) => Err(FarewellError::Deaf),
    };
    let ended = client.shutdown().map_err(FarewellError::Io);
    // It has everything, so it doesn't matter how long it stays.
    let _ = timeout_at(deadline, hang_up(client)).await;
    sent.and(ended)
}

/// Why a client didn't get its last bytes, or wasn't closed.
#[derive(Debug, thiserror::Error)]
enum FarewellError {
    /// It reads too slowly, or not at all.
    #[error("the client didn't take its last answer")]
    Deaf,
    /// Its connection failed.
    #[error(transparent)]
    Io(io::Error),
}

/// Moves bytes until the session is to be cleaned up.
async fn converse(
    client: &mut impl Duplex,
    session: &mut impl Session,
    agent: &mut Option<Side<Box<impl Duplex>>>,
) {
    let mut client = Side::new(client);
    loop {
        let now = now();
        session.timeout(now);
        if client.duplex.hung_up() {
            session.client_closed(false);
        }
        let is_still = (0..ROUNDS).any(|_| !exchange(&mut client, session, agent, now));
        if session.is_over() {
            return;
        }
        if !is_still {
            tokio::task::yield_now().await;
            continue;
        }
        let client_wants = client.wants(takes_client_bytes(session), session.to_client());
        let agent_wants =
            agent.as_ref().and_then(|a| a.wants(session.takes_agent_bytes(), session.to_agent()));
        let mut deadline = pin!(until(session.deadline()));
        poll_fn(|context| {
            // The client first, so that what it has sent before its agent went is answered.
            if client.poll_ready(client_wants, context).is_ready() {
                return Poll::Ready(());
            }
            if let Some(agent) = agent
                && agent.poll_ready(agent_wants, context).is_ready()
            {
                return Poll::Ready(());
            }
            if session.poll_turn(context).is_ready() {
                return Poll::Ready(());
            }
            deadline.as_mut().poll(context)
        })
        .await;
    }
}

/// Moves what can be moved, each way once. True if anything was.
fn exchange(
    client: &mut Side<&mut impl Duplex>,
    session: &mut impl Session,
    agent: &mut Option<Side<Box<impl Duplex>>>,
    now: Instant,
) -> bool {
    let mut moved = false;
    if let Some(agent) = agent
        && session.takes_agent_bytes()
    {
        moved |= agent.read(|bytes| session.agent_bytes(bytes));
    }
    let given = client.write(session.to_client());
    session.client_took(given);
    moved |= given > 0;
    if takes_client_bytes(session) {
        moved |= client.read(|bytes| session.client_bytes(bytes));
        if client.is_at_end && client.unread.is_empty() {
            session.client_eof();
        }
    }
    if client.is_broken {
        session.client_closed(true);
    }
    if let Some(agent) = agent {
        let sent = agent.write(session.to_agent());
        session.agent_took(sent, now);
        moved |= sent > 0;
    }
    if !moved
        && session.to_client().is_empty()
        && let Some(ended) = agent.take_if(|agent| agent.is_at_end || agent.is_broken)
    {
        session.agent_closed(ended.had_error);
        moved = true;
    }
    moved
}

/// Whether the client is read from: what it has said before goes to the agent first.
fn takes_client_bytes(session: &impl Session) -> bool {
    session.to_agent().is_empty() && session.takes_client_bytes()
}

/// One side of a session, with a pointer to what carries its bytes: the agent's is closed with it.
struct Side<D> {
    duplex: D,
    /// What was read and the session hasn't taken yet.
    unread: VecDeque<u8>,
    /// Nothing more can be read.
    is_at_end: bool,
    /// Nothing more can be written.
    is_broken: bool,
    /// The connection has failed, rather than been closed by its peer.
    had_error: bool,
}

impl<D: DerefMut<Target: Duplex>> Side<D> {
    fn new(duplex: D) -> Self {
        Self {
            duplex,
            unread: VecDeque::new(),
            is_at_end: false,
            is_broken: false,
            had_error: false,
        }
    }

    /// Passes on what can be read; `take` says how much it took. True if anything came or was taken.
    fn read(&mut self, mut take: impl FnMut(&[u8]) -> usize) -> bool {
        if !self.unread.is_empty() {
            let taken = take(self.unread.as_slices().0);
            self.unread.drain(..taken);
            if self.unread.is_empty() {
                self.unread = VecDeque::new();
            }
            return taken > 0;
        }
        if self.is_at_end {
            return false;
        }
        let mut buffer = [0; READ_SIZE];
        match self.duplex.try_read(&mut buffer) {
            Ok(0) => self.is_at_end = true,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                let taken = take(bytes);
                self.unread.extend(bytes.get(taken..).unwrap_or_default());
            }
            Err(error) if is_transient(&error) => return false,
            Err(error) => self.break_off(&error),
        }
        true
    }

    /// Writes what there is room for.
    fn write(&mut self, bytes: &[u8]) -> usize {
        if bytes.is_empty() || self.is_broken {
            return 0;
        }
        match self.duplex.try_write(bytes) {
            Ok(count) => count,
            Err(error) if is_transient(&error) => 0,
            Err(error) => {
                tracing::debug!(%error, "can't write");
                // What came before can still be read.
                self.is_broken = true;
                self.had_error |= error.kind() != io::ErrorKind::BrokenPipe;
                0
            }
        }
    }

    fn break_off(&mut self, error: &io::Error) {
        tracing::debug!(%error, "can't read");
        (self.is_at_end, self.is_broken, self.had_error) = (true, true, true);
    }

    /// What to wait for.
    fn wants(&self, is_taken: bool, to_send: &[u8]) -> Option<Interest> {
        let read = is_taken && !self.is_at_end && self.unread.is_empty();
        let write = !to_send.is_empty() && !self.is_broken;
        match (read, write) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    fn poll_ready(&mut self, wants: Option<Interest>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_broken {
            return Poll::Pending;
        }
        self.duplex.poll_ready(wants, context).map(|ready| {
            if let Err(error) = ready {
                self.break_off(&error);
            }
        })
    }
}

/// Writes all that is left for the client, unless that is gone.
async fn send_rest(client: &mut impl Duplex, session: &mut impl Session) -> io::Result<()> {
    while !session.to_client().is_empty() && !client.hung_up() {
        match client.try_write(session.to_client()) {
            Ok(count) => session.client_took(count),
            Err(error) if is_transient(&error) => {
                poll_fn(|context| client.poll_ready(Some(Interest::WRITABLE), context)).await?;
            }
            Err(error) if is_hang_up(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the client is gone both ways.
async fn hang_up(client: &mut impl Duplex) {
    while !client.hung_up() {
        if poll_fn(|context| client.poll_ready(None, context)).await.is_err() {
            return;
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Waits for a deadline, forever if there is none.
pub async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
