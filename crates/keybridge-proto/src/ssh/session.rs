//! The session of the ssh lane: host side, one for each stream, with one connection to the agent for
//! its whole life, since a bind belongs to a connection.
//!
//! One request is under way at a time, so answers have the order of the requests, whether the agent
//! or the gate gives them. What a client sends early waits in its stream. The gate decides on a
//! request before its first byte is forwarded. Only the beginning of a request is stored until then,
//! and of the answers only a list of keys, if not every key is lent.
//!
//! Without an agent the session continues and refuses each request: clients then report a refusal
//! instead of a broken connection. After an invalid frame, or when the agent dies, the request under
//! way gets a failure, unless its answer has begun, and the connection is closed.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::binds::Binds;
use super::frame::{bare, head};
use super::{
    Cut, Identities, KeySelection, Malformed, MessageType, Piece, Reading, Request,
    SelectionInForce, SessionError, Summary,
};
use crate::gate::{self, Policy, Verdict};
use crate::session::core::{HasCore, SessionCore, SessionState};
use crate::session::{Cleanup, LeftOperation, Limits, Operations, Outcome, Peer, Session, Turn};

pub use crate::ssh::session_machine::{Event, State};

/// How much of a request may be needed to decide on it. The largest certificates, with signatures of
/// 50 KB, are smaller.
const HEAD_LIMIT: usize = 64 * 1024;

/// How long the rest of a longer request for a signature may take to come.
const REST_TIME: Duration = Duration::from_secs(30);

/// How much is moved at once, so that a large input can't fill an outbox.
pub(super) const PIECE: usize = 4 * 1024;

/// Drives the machine with bytes and time. Owned by the owner of the stream, and over when its state
/// is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct SshSession {
    limits: Limits,
    policy: Policy,
    /// Where the choice of keys is, if it can change, and what it was when it was looked at last.
    keys: Option<(SelectionInForce, Rc<KeySelection>)>,
    reach: Reach,
    request: Beginning,
    binds: Binds,
    operations: Operations,
    /// Of the signature that waits for its turn or is under way.
    turn: Option<Turn>,
    /// When the session was driven last.
    now: Option<Instant>,
    /// The answer to a request that is refused.
    reply: MessageType,
    /// The agent's list of keys, while it comes, if it has to be reduced.
    list: Option<Vec<u8>>,
    core: SessionCore<State>,
}

/// Whether there is an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// There is one, or it is being connected.
    Agent,
    /// There is none.
    Nobody,
}

/// The beginning of the request under way, held until it is decided on.
struct Beginning {
    kind: MessageType,
    size: usize,
    body: Vec<u8>,
}

// The body may be secret.
impl fmt::Debug for Beginning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Beginning({})", Summary::new(self.kind, self.size))
    }
}

impl Beginning {
    fn begin(&mut self, kind: MessageType, size: usize) {
        (self.kind, self.size) = (kind, size);
        self.body.clear();
    }

    /// Keeps some capacity, so that a steady flow of requests allocates nothing.
    fn forget(&mut self) {
        self.body.clear();
        self.body.shrink_to(PIECE);
    }
}

impl SshSession {
    /// A session without a connection.
    pub fn new(policy: Policy, limits: Limits) -> Self {
        Self {
            limits,
            policy,
            keys: None,
            reach: Reach::Agent,
            request: Beginning { kind: MessageType::FAILURE, size: 0, body: Vec::new() },
            binds: Binds::default(),
            operations: Operations::default(),
            turn: None,
            now: None,
            reply: MessageType::FAILURE,
            list: None,
            core: SessionCore::new(State::Disconnected),
        }
    }

    /// Has its signatures take turns with the operations of other sessions.
    #[must_use]
    pub fn sharing(self, operations: Operations) -> Self {
        Self { operations, ..self }
    }

    /// Has it ask for the choice of keys that is in force at each request.
    #[must_use]
    pub fn asking(mut self, keys: &SelectionInForce) -> Self {
        let now = keys.get();
        self.policy.ssh_keys = KeySelection::clone(&now);
        self.keys = Some((keys.clone(), now));
        self
    }

    /// A client wants to talk to the agent; the agent's socket is to be connected.
    pub fn connect_requested(&mut self, now: Instant) {
        self.now = Some(now);
        self.core.expect_within(now, self.limits.connect, SessionError::ConnectTimeout);
        self.core.step(Event::ClientConnectRequested);
    }

    /// The session's time limits.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Which keys the client may see and use.
    pub const fn keys(&self) -> &KeySelection {
        &self.policy.ssh_keys
    }

    /// The agent has these keys, as the host itself has asked: chooses those that are lent by their
    /// comments. Until then none of them is lent.
    pub fn choose_keys(&mut self, listed: &Identities<'_>) {
        self.update_keys();
        self.policy.ssh_keys = self.policy.ssh_keys.resolved(listed);
    }

    /// The agent's socket is connected.
    pub fn agent_connected(&mut self) {
        if self.core.state == State::ConnectingToAgent {
            self.core.expect_nothing();
            self.core.step(Event::AgentSocketConnected);
        }
    }
}

impl HasCore for SshSession {
    type State = State;

    fn core(&self) -> &SessionCore<State> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut SessionCore<State> {
        &mut self.core
    }

    fn take_from_client(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        if self.core.state == State::Ready {
            self.core.step(Event::RequestBegun);
        }
        let not_a_frame = |error| SessionError::Frame { from: Peer::Client, error };
        let piece = input.get(..PIECE).unwrap_or(input);
        let Cut { taken, piece } = self.core.from_client.cut(piece).map_err(not_a_frame)?;
        match piece {
            None => {}
            Some(Piece::Start { kind, size }) => {
                tracing::trace!("from the client: {}", Summary::new(kind, size));
                if kind.is_answer() {
                    return Err(SessionError::AnswerOfClient(kind));
                }
                self.request.begin(kind, size);
                self.decide();
            }
            Some(Piece::Part(part)) => match self.core.state {
                State::ReadingRequest => {
                    self.request.body.extend_from_slice(part);
                    self.decide();
                }
                State::SendingToAgent => self.core.to_agent.push(part),
                State::SkippingRequest
                | State::Disconnected
                | State::ConnectingToAgent
                | State::Ready
                | State::WaitingForAgent
                | State::SendingToClient
                | State::Error
                | State::Closing
                | State::Fatal => {}
            },
        }
        self.answer_if_skipped();
        Ok(taken)
    }

    fn take_from_agent(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        if !self.is_answer_due() {
            return Err(SessionError::Unasked { size: input.len() });
        }
        let not_a_frame = |error| SessionError::Frame { from: Peer::Agent, error };
        let piece = input.get(..PIECE).unwrap_or(input);
        let Cut { taken, piece } = self.core.from_agent.cut(piece).map_err(not_a_frame)?;
        match piece {
            None => return Ok(taken),
            Some(Piece::Start { kind, size }) => {
                tracing::trace!("from the agent: {}", Summary::new(kind, size));
                self.update_keys();
                if let Err(error) = self.binds.answered(kind) {
                    self.core.note(error.into());
                }
                if let (Some(turn), Some(now)) = (self.turn.take(), self.now) {
                    let was_signed = kind == MessageType::SIGN_RESPONSE;
                    let outcome = if was_signed { Outcome::Succeeded } else { Outcome::Failed };
                    turn.finish(outcome, None, now);
                }
                if kind == MessageType::IDENTITIES_ANSWER && !self.policy.ssh_keys.is_all() {
                    self.list = Some(Vec::with_capacity(size));
                } else {
                    self.core.to_client.push(&head(kind, size));
                    self.core.step(Event::AnswerBegun);
                }
            }
            Some(Piece::Part(part)) => match &mut self.list {
                Some(list) => list.extend_from_slice(part),
                None => self.core.to_client.push(part),
            },
        }
        if self.core.from_agent.is_between_frames() {
            self.update_keys();
            if let Some(list) = self.list.take() {
                let lent = self.policy.ssh_keys.filter(&list)?;
                let head = head(MessageType::IDENTITIES_ANSWER, lent.len());
                self.core.to_client.push(&head);
                self.core.to_client.push(&lent);
                self.core.step(Event::AnswerBegun);
            }
            self.core.expect_nothing();
            self.core.step(Event::AnswerComplete);
            self.close_if_client_is_done();
        }
        Ok(taken)
    }
}

impl Session for SshSession {
    fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.go_on_without_agent(SessionError::Unreachable(reason.into()));
    }

    fn takes_client_bytes(&self) -> bool {
        let expected = match self.core.state {
            State::ReadingRequest => self.turn.is_none(),
            State::Ready | State::SkippingRequest => true,
            State::SendingToAgent => !self.core.from_client.is_between_frames(),
            State::Disconnected
            | State::ConnectingToAgent
            | State::WaitingForAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        };
        expected && self.core.has_room_for_client_bytes()
    }

    fn client_eof(&mut self) {
        self.core.client_eof = true;
        if self.core.from_client.is_between_frames() {
            self.close_if_client_is_done();
        } else {
            self.core.fail(SessionError::CutShort(Peer::Client));
        }
    }

    fn takes_agent_bytes(&self) -> bool {
        match self.core.state {
            State::Ready
            | State::ReadingRequest
            | State::SkippingRequest
            | State::SendingToAgent
            | State::WaitingForAgent
            | State::SendingToClient => self.core.to_client.has_room(),
            State::Disconnected
            | State::ConnectingToAgent
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    fn agent_closed(&mut self, had_error: bool) {
        if self.core.state == State::SendingToClient {
            self.core.fail(SessionError::CutShort(Peer::Agent));
        } else if self.core.state.takes_farewell() {
            self.core.fail(SessionError::Broken(Peer::Agent));
        } else {
            self.core.agent_closed(had_error, false);
        }
    }

    fn agent_took(&mut self, count: usize, now: Instant) {
        self.now = Some(now);
        let SessionCore { state, to_agent, from_client, .. } = &mut self.core;
        to_agent.took(count);
        let is_whole = to_agent.is_empty() && from_client.is_between_frames();
        if *state == State::SendingToAgent && is_whole {
            self.core.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            self.core.step(Event::AgentWriteOk);
        }
    }

    fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        match (self.core.state, &self.turn) {
            (State::ReadingRequest, Some(turn)) => turn.poll(context),
            _ => Poll::Pending,
        }
    }

    fn left_operation(&mut self) -> Option<LeftOperation> {
        self.turn.take().and_then(LeftOperation::of_ssh)
    }

    fn cleanup(&mut self) -> Option<Cleanup> {
        // Others needn't wait until the client has read its last answer.
        self.turn = None;
        self.core.take_cleanup()
    }

    fn timeout(&mut self, now: Instant) {
        self.now = Some(now);
        if self.core.state == State::ReadingRequest && self.turn.is_some() {
            self.decide();
            self.answer_if_skipped();
        }
        match self.core.expired(now) {
            Some(error) if self.core.state == State::ConnectingToAgent => {
                self.go_on_without_agent(error);
            }
            Some(error) => self.core.fail(error),
            None => {}
        }
    }
}

impl SshSession {
    fn go_on_without_agent(&mut self, error: SessionError) {
        if self.core.state == State::ConnectingToAgent {
            self.core.expect_nothing();
            self.core.note(error);
            self.reach = Reach::Nobody;
            self.core.step(Event::AgentUnreachable);
        }
    }

    /// Takes over another choice of keys.
    fn update_keys(&mut self) {
        let Some((keys, seen)) = &mut self.keys else { return };
        let now = keys.get();
        if !Rc::ptr_eq(&now, seen) {
            self.policy.ssh_keys = KeySelection::clone(&now);
            *seen = now;
        }
    }

    /// Forwards or refuses the request, once enough of it is there.
    fn decide(&mut self) {
        self.update_keys();
        let Beginning { kind, size, body } = &self.request;
        // What the host knows of the signature that is wanted.
        let mut wanted = None;
        let verdict = match (self.reach, Request::read(*kind, body, *size)) {
            (Reach::Agent, Ok(Reading::NeedsMore)) if body.len() < HEAD_LIMIT => return,
            (Reach::Nobody, _) => Ok(Verdict::Deny),
            // What can't be parsed is refused.
            (Reach::Agent, Ok(Reading::NeedsMore) | Err(Malformed)) => {
                self.binds.unreadable(*kind, body).map(|()| Verdict::Deny)
            }
            (Reach::Agent, Ok(Reading::Known(request))) => {
                let request = self.binds.qualify(request);
                wanted = self.binds.wanted(&request);
                match gate::decide_ssh(&self.policy, self.operations.uses(), &request) {
                    Verdict::Allow => self.binds.judge(&request, || {
                        self.now.is_none_or(|now| self.operations.may_verify_bind(now))
                    }),
                    Verdict::Deny => Ok(Verdict::Deny),
                }
            }
        };
        let mut verdict = verdict.unwrap_or_else(|error| {
            self.core.note(error.into());
            Verdict::Deny
        });
        if verdict == Verdict::Allow && *kind == MessageType::SIGN_REQUEST {
            // A client that stalls must not have a turn, so most requests are complete before.
            if body.len() < *size && body.len() < HEAD_LIMIT {
                return;
            }
            let Some(now) = self.now else { return };
            if self.turn.is_none() {
                self.turn = wanted.take().map(|wanted| self.operations.queue(wanted, now));
            }
            match &mut self.turn {
                None => verdict = Verdict::Deny,
                Some(turn) => {
                    turn.drive(now);
                    match turn.refusal() {
                        None if !turn.has_come() => return,
                        None => {}
                        Some(_) => verdict = Verdict::Deny,
                    }
                }
            }
        }
        self.reply = match verdict {
            Verdict::Allow => {
                self.core.to_agent.push(&head(*kind, *size));
                self.core.to_agent.push(body);
                self.core.step(Event::RequestAllowed);
                self.request.forget();
                if self.turn.is_some()
                    && !self.core.from_client.is_between_frames()
                    && let Some(now) = self.now
                {
                    self.core.expect_within(now, REST_TIME, SessionError::RequestTimeout);
                }
                return;
            }
            Verdict::Deny if *kind == MessageType::EXTENSION && self.reach == Reach::Agent => {
                MessageType::EXTENSION_FAILURE
            }
            Verdict::Deny => MessageType::FAILURE,
        };
        match (self.turn.take(), wanted, self.now) {
            (Some(turn), _, Some(now)) => turn.finish(Outcome::Refused, None, now),
            (None, Some(wanted), _) => self.operations.note_refused(&wanted),
            (Some(_), _, None) | (None, None, _) => {}
        }
        let request = Summary::new(*kind, *size);
        tracing::debug!("{request} is refused with {}", self.reply);
        self.core.step(Event::RequestRefused);
        self.request.forget();
    }

    /// Answers a refused request when it is complete.
    fn answer_if_skipped(&mut self) {
        let SessionCore { state, from_client, to_client, .. } = &mut self.core;
        if *state == State::SkippingRequest && from_client.is_between_frames() {
            to_client.push(&bare(self.reply));
            self.core.step(Event::RequestSkipped);
        }
    }

    const fn is_answer_due(&self) -> bool {
        match self.core.state {
            State::WaitingForAgent | State::SendingToClient => true,
            State::Disconnected
            | State::ConnectingToAgent
            | State::Ready
            | State::ReadingRequest
            | State::SkippingRequest
            | State::SendingToAgent
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    /// Closes the session if the client's input has ended and no answer is due.
    fn close_if_client_is_done(&mut self) {
        let idle = match self.core.state {
            State::ConnectingToAgent | State::Ready => true,
            State::Disconnected
            | State::ReadingRequest
            | State::SkippingRequest
            | State::SendingToAgent
            | State::WaitingForAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        };
        if idle && self.core.client_eof {
            self.core.close();
        }
    }
}
