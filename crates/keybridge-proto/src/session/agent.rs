//! The agent session: host side, one for each stream of the gpg lane.
//!
//! Before the client's first byte, the session opens the socket, reads the greeting and has the
//! socket prove that it is restricted; `machine.rs` has the diagram. `D` lines of an inquiry are
//! forwarded in Ready, since the agent doesn't answer them.

mod agent_line;
mod keyinfo_fallback;
mod machine;

use std::sync::Arc;
use std::time::Instant;

use super::core::{HasCore, SessionCore};
use super::outbox::Outbox;
use super::{Limits, Peer, Session, SessionError};
use crate::Secret;
use crate::assuan::{Cut, Reply, RequestLine, ResponseLine, Summary};
use crate::gate::{AgentSocket, CallerSlot, GpgGate, GpgVerdict, LentKeys, Policy};
use crate::socket_file::{Opening, Step};
use agent_line::{Meaning, judge};
use keyinfo_fallback::{KeyinfoFallback, keyinfo_keygrip};
use machine::Phase;

pub use machine::{Event, State};

/// Drives the machine with bytes and time. Owned by the owner of the stream, and over when its state
/// is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct AgentSession {
    phase: Phase,
    limits: Limits,
    gate: GpgGate,
    core: SessionCore<State>,
}

/// Ends an inquiry without data.
const CANCEL: &[u8] = b"CAN\n";

/// Only a restricted socket answers with OK.
const PROOF: &[u8] = b"GETINFO restricted\n";

impl AgentSession {
    /// A session without a connection, for a client that may use these keys.
    pub fn new(policy: Policy, lent: Arc<LentKeys>, limits: Limits) -> Self {
        Self {
            phase: Phase::Greeting,
            limits,
            gate: GpgGate::new(policy, lent),
            core: SessionCore::new(State::Disconnected),
        }
    }

    /// Sets the keys that may be used, for a session that begins before they are known. To be called
    /// before the agent is connected.
    pub fn lend(&mut self, lent: Arc<LentKeys>) {
        self.gate.lend(lent);
    }

    /// Tells the gate who asks.
    pub fn asked_by(&mut self, caller: CallerSlot) {
        self.gate.asked_by(caller);
    }

    /// A client wants to talk to the agent; the agent's socket is to be connected.
    pub fn connect_requested(&mut self, now: Instant) {
        self.core.expect_within(now, self.limits.connect, SessionError::ConnectTimeout);
        self.core.step(Event::ClientConnectRequested);
    }

    /// The agent's socket is connected.
    pub fn agent_connected(&mut self, opening: Opening, now: Instant) {
        if self.core.state != State::ConnectingToAgent {
            return;
        }
        self.core.expect_within(now, self.limits.greeting, SessionError::GreetingTimeout);
        self.core.step(Event::AgentSocketConnected);
        self.phase = Phase::Opening { opening, received: Secret::new(Vec::new()) };
        self.continue_opening();
        if self.core.state == State::SocketConnected {
            // On a Unix socket nothing is sent before the greeting.
            self.core.step(Event::ClientDataReceived);
            self.core.step(Event::AgentWriteOk);
        }
    }

    /// Whether the agent waits for data of the client rather than for a command.
    pub const fn is_in_inquiry(&self) -> bool {
        matches!(self.phase, Phase::Inquiry)
    }
}

impl HasCore for AgentSession {
    type State = State;

    fn core(&self) -> &SessionCore<State> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut SessionCore<State> {
        &mut self.core
    }

    /// Takes a line at most.
    fn take_from_client(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        let SessionCore { from_client, to_agent, to_client, .. } = &mut self.core;
        let too_long = |error| SessionError::LineTooLong { from: Peer::Client, error };
        let Cut { taken, line } = from_client.cut(input).map_err(too_long)?;
        let Some(line) = line else { return Ok(taken) };
        tracing::trace!("from the client: {}", Summary::of(line));
        let request = RequestLine::parse(line)?;
        if is_answer(line) {
            return Err(SessionError::AnswerOfClient);
        }
        let in_inquiry = matches!(self.phase, Phase::Inquiry);
        let verdict = if in_inquiry {
            GpgGate::judge_in_inquiry(&request)
        } else {
            self.gate.judge(&request)
        };
        match verdict {
            GpgVerdict::Forward => {
                to_agent.push(line);
                if !(in_inquiry && request.continues_inquiry()) {
                    let command = request.command().filter(|_| self.gate.policy().heal);
                    let keyinfo = command.and_then(|command| keyinfo_keygrip(&command));
                    self.phase = Phase::Open { keyinfo };
                    self.core.bye = request.is_bye();
                    self.core.step(Event::ClientDataReceived);
                }
            }
            GpgVerdict::Skip => {}
            GpgVerdict::Answer(_) | GpgVerdict::ListKeys { .. } if in_inquiry => {
                to_agent.push(CANCEL);
                self.phase = Phase::DeniedInquiry;
                self.core.step(Event::ClientDataReceived);
            }
            GpgVerdict::Answer(reply) => to_client.push(reply.line()),
            GpgVerdict::ListKeys { limit } => list_keys(self.gate.lent(), limit, to_client),
        }
        Ok(taken)
    }

    /// Takes a line, or a part of the opening exchange, at most.
    fn take_from_agent(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        if let Phase::Opening { .. } = self.phase {
            return self.take_opening(input);
        }
        let SessionCore { from_agent, to_client, state, .. } = &mut self.core;
        let too_long = |error| SessionError::LineTooLong { from: Peer::Agent, error };
        let Cut { taken, line } = from_agent.cut(input).map_err(too_long)?;
        let Some(line) = line else {
            self.core.step(Event::AgentDataChunk);
            return Ok(taken);
        };
        tracing::trace!("from the agent: {}", Summary::of(line));
        let meaning = match judge(&self.phase, *state, line) {
            Ok(meaning) => meaning,
            Err(error @ SessionError::GreetingErr(_)) => {
                // The client then fails with the agent's own error.
                to_client.push(line);
                self.core.fail_silently(error);
                return Ok(input.len());
            }
            Err(error) => return Err(error),
        };
        match meaning {
            Meaning::Part => {
                to_client.push(line);
                self.core.step(Event::AgentDataChunk);
            }
            Meaning::Hidden => self.core.step(Event::AgentDataChunk),
            Meaning::Greeting => {
                let greeting = line.to_vec();
                self.greeted(greeting);
            }
            Meaning::Proven => {
                if let Phase::Proof { greeting } = &self.phase {
                    to_client.push(greeting);
                }
                self.answered(Phase::OPEN);
            }
            Meaning::End { ok } => {
                to_client.push(line);
                self.gate.answered(ok);
                self.answered(Phase::OPEN);
            }
            Meaning::Inquire => {
                to_client.push(line);
                self.answered(Phase::Inquiry);
            }
            Meaning::KeyinfoForbidden(keygrip) => {
                let fallback = KeyinfoFallback::new(keygrip, line);
                self.ask_in_another_way(fallback);
            }
            Meaning::EndOfFallback { has_key } => {
                if let Phase::KeyinfoFallback(fallback) = &self.phase {
                    to_client.push(&fallback.answer(has_key));
                }
                self.answered(Phase::OPEN);
            }
            Meaning::EndOfDenied => {
                to_client.push(Reply::Forbidden.line());
                self.gate.answered(false);
                self.answered(Phase::OPEN);
            }
            Meaning::InquireAfterDenied => {
                self.ask_agent(CANCEL);
            }
        }
        Ok(taken)
    }
}

impl Session for AgentSession {
    fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.core.fail(SessionError::Unreachable(reason.into()));
    }

    fn takes_client_bytes(&self) -> bool {
        let open = match self.phase {
            Phase::Open { .. } | Phase::Inquiry => true,
            Phase::Opening { .. }
            | Phase::Greeting
            | Phase::Proof { .. }
            | Phase::DeniedInquiry
            | Phase::KeyinfoFallback(_) => false,
        };
        open && self.core.state == State::Ready && self.core.has_room_for_client_bytes()
    }

    fn client_eof(&mut self) {
        self.core.client_eof = true;
        self.close_if_client_is_done();
    }

    fn takes_agent_bytes(&self) -> bool {
        match self.core.state {
            State::Ready | State::WaitingForAgent => self.core.to_client.has_room(),
            State::Disconnected
            | State::ConnectingToAgent
            | State::SocketConnected
            | State::SendingToAgent
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    fn agent_closed(&mut self, had_error: bool) {
        let client_waits = self.owes_an_answer();
        self.core.agent_closed(had_error, client_waits);
    }

    fn agent_took(&mut self, count: usize, now: Instant) {
        self.core.to_agent.took(count);
        if self.core.state != State::SendingToAgent || !self.core.to_agent.is_empty() {
            return;
        }
        self.core.step(Event::AgentWriteOk);
        match self.phase {
            Phase::Opening { .. } => self.continue_opening(),
            Phase::Greeting | Phase::Proof { .. } => {}
            Phase::Open { .. }
            | Phase::Inquiry
            | Phase::DeniedInquiry
            | Phase::KeyinfoFallback(_) => {
                self.core.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            }
        }
    }
}

impl AgentSession {
    /// Takes bytes of the opening exchange.
    fn take_opening(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        let Phase::Opening { opening, received } = &mut self.phase else { return Ok(0) };
        let Step::Receive(count) = opening.step() else { return Ok(0) };
        let missing = count.saturating_sub(received.expose().len());
        let part = input.get(..missing).unwrap_or(input);
        received.extend(part);
        if received.expose().len() < count {
            self.core.step(Event::AgentDataChunk);
        } else {
            opening
                .received(received.expose())
                .map_err(|error| SessionError::Opening(error.to_string()))?;
            *received = Secret::new(Vec::new());
            self.continue_opening();
        }
        Ok(part.len())
    }

    /// Does what is our turn in the opening exchange.
    fn continue_opening(&mut self) {
        let Phase::Opening { opening, .. } = &mut self.phase else { return };
        match opening.step() {
            Step::Send(bytes) => {
                self.core.to_agent.push(bytes.expose());
                if self.core.state == State::WaitingForAgent {
                    self.core.step(Event::AgentDataReceived);
                }
                self.core.step(Event::ClientDataReceived);
            }
            Step::Receive(_) => {}
            Step::Done => self.phase = Phase::Greeting,
        }
    }

    /// The agent greeted. The client sees the greeting when the socket has proven itself.
    fn greeted(&mut self, greeting: Vec<u8>) {
        match self.gate.policy().socket {
            AgentSocket::Extra => {
                self.phase = Phase::Proof { greeting };
                self.ask_agent(PROOF);
            }
            AgentSocket::Main => {
                self.core.to_client.push(&greeting);
                self.answered(Phase::OPEN);
            }
        }
    }

    /// The agent forbids `KEYINFO`: it is asked `HAVEKEY`.
    fn ask_in_another_way(&mut self, fallback: KeyinfoFallback) {
        tracing::debug!("the agent forbids KEYINFO, asking HAVEKEY instead");
        self.ask_agent(&fallback.question());
        self.phase = Phase::KeyinfoFallback(fallback);
    }

    /// Sends a line of the session's own, after the agent's answer to the one before it.
    fn ask_agent(&mut self, line: &[u8]) {
        self.core.step(Event::AgentDataReceived);
        self.core.to_agent.push(line);
        self.core.step(Event::ClientDataReceived);
    }

    /// A response is complete, and it is the client's turn.
    fn answered(&mut self, phase: Phase) {
        self.phase = phase;
        self.core.expect_nothing();
        self.core.step(Event::AgentDataReceived);
        self.close_if_client_is_done();
    }

    /// Closes the session if the client's input has ended and no answer is due.
    fn close_if_client_is_done(&mut self) {
        if self.core.client_eof && self.core.state == State::Ready {
            self.core.close();
        }
    }

    /// Whether the client waits for a line, so that it needs an error if none will come.
    const fn owes_an_answer(&self) -> bool {
        match self.core.state {
            State::ConnectingToAgent
            | State::SocketConnected
            | State::SendingToAgent
            | State::WaitingForAgent => true,
            // Who is in the middle of a command waits for its answer.
            State::Ready => self.is_in_inquiry() || self.core.from_client.is_in_line(),
            State::Disconnected | State::Error | State::Closing | State::Fatal => false,
        }
    }
}

/// Whether a line is one that only an agent sends.
fn is_answer(line: &[u8]) -> bool {
    match ResponseLine::parse(line) {
        Ok(
            ResponseLine::Ok | ResponseLine::Err(_) | ResponseLine::Status | ResponseLine::Inquire,
        ) => true,
        Ok(
            ResponseLine::Data | ResponseLine::End | ResponseLine::Comment | ResponseLine::Blank,
        )
        | Err(_) => false,
    }
}

/// How many keygrips are in a `D` line: each takes up to 60 bytes, if every byte is escaped.
const KEYGRIPS_PER_LINE: usize = 16;

/// The answer to `HAVEKEY --list`.
fn list_keys(lent: &LentKeys, limit: usize, to_client: &mut Outbox) {
    if lent.len() > limit {
        to_client.push(Reply::Truncated.line());
        return;
    }
    let mut keygrips = lent.keygrips().peekable();
    while keygrips.peek().is_some() {
        to_client.push(b"D ");
        for keygrip in keygrips.by_ref().take(KEYGRIPS_PER_LINE) {
            to_client.push_escaped(keygrip.as_bytes());
        }
        to_client.push(b"\n");
    }
    to_client.push(Reply::Ok.line());
}
