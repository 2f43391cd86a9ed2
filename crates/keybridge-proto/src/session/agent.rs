//! The agent session: host side, one for each stream of the gpg lane.
//!
//! Before the client's first byte, the session opens the socket, reads the greeting and has the
//! socket prove that it is restricted; `agent_machine.rs` has the diagram. Lines are taken one at a
//! time, and forwarded as they are, save for the text of a dialog. `D` lines of an inquiry are
//! forwarded in Ready, since the agent doesn't answer them.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::core::{HasCore, SessionCore};
use super::{Cleanup, LeftOperation, Limits, Operations, Peer, Session, SessionError};
use crate::Secret;
use crate::assuan::{Cut, Reply, RequestLine, ResponseLine, Summary};
use crate::gate::{AgentSocket, GpgGate, GpgVerdict, KeyOperation, KeySource, LentKeys, Policy};
use crate::session::agent_keys::{KeysInForce, has_keys_of_now, list_keys};
use crate::session::agent_line::{Meaning, judge};
use crate::session::agent_machine::Phase;
use crate::session::agent_operation::Operation;
use crate::session::keyinfo_fallback::{KeyinfoFallback, keyinfo_keygrip};
use crate::socket_file::{Opening, Step};

pub use crate::session::agent_machine::{Event, State};

/// Drives the machine with bytes and time. Owned by the owner of the stream, and over when its state
/// is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct AgentSession {
    phase: Phase,
    limits: Limits,
    gate: GpgGate,
    /// Where the gate's keys come from, if they can change.
    keys: Option<KeysInForce>,
    operations: Operations,
    /// The operation that waits for its turn or is under way.
    operation: Option<Operation>,
    /// The line that waits with it: the command, or the end of its inquiry.
    waiting: Vec<u8>,
    /// When the session was driven last.
    now: Option<Instant>,
    core: SessionCore<State>,
}

/// Ends an inquiry without data.
const CANCEL: &[u8] = b"CAN\n";

/// Its answer shows that the agent has answered everything before it.
const IN_STEP: &[u8] = b"NOP\n";

/// For the dialog of an operation that a client asks for without a text.
const NO_TEXT: &[u8] = b"A+program+there+uses+a+secret+key+of+yours.";

/// Only a restricted socket answers with OK.
const PROOF: &[u8] = b"GETINFO restricted\n";

impl AgentSession {
    /// A session without a connection, for a client that may use these keys.
    pub fn new(policy: Policy, lent: Arc<LentKeys>, limits: Limits) -> Self {
        Self {
            phase: Phase::Greeting,
            limits,
            gate: GpgGate::new(policy, lent),
            keys: None,
            operations: Operations::default(),
            operation: None,
            waiting: Vec::new(),
            now: None,
            core: SessionCore::new(State::Disconnected),
        }
    }

    /// Has its operations take turns with those of other sessions.
    #[must_use]
    pub fn sharing(self, operations: Operations) -> Self {
        Self { operations, ..self }
    }

    /// Has it ask for the keys that are lent: those of the last reading count for each line, and those of
    /// now for an operation.
    #[must_use]
    pub fn asking(mut self, keys: Rc<dyn KeySource>) -> Self {
        self.keys = Some(KeysInForce::new(keys));
        self
    }

    /// A client wants to talk to the agent; the agent's socket is to be connected.
    pub fn connect_requested(&mut self, now: Instant) {
        self.now = Some(now);
        self.core.expect_within(now, self.limits.connect, SessionError::ConnectTimeout);
        self.core.step(Event::ClientConnectRequested);
    }

    /// Refuses a client for which there is no room, and tells it.
    pub fn refuse(&mut self) {
        self.core.fail(SessionError::TooManyClients);
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
    pub(crate) const fn is_in_inquiry(&self) -> bool {
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
        if let Some(keys) = &self.keys {
            self.gate.lend(keys.known());
        }
        let in_inquiry = matches!(self.phase, Phase::Inquiry);
        if let Some(kind) = GpgGate::operation(&request).filter(|_| !in_inquiry) {
            line.clone_into(&mut self.waiting);
            self.wait_for_turn(kind, false);
            return Ok(taken);
        }
        let verdict = if in_inquiry {
            GpgGate::judge_in_inquiry(&request)
        } else {
            self.gate.judge(&request)
        };
        match (verdict, &mut self.operation) {
            (GpgVerdict::Forward, Some(operation)) if in_inquiry && is_end(&request) => {
                operation.resume();
                let kind = operation.kind;
                line.clone_into(&mut self.waiting);
                self.wait_for_turn(kind, true);
            }
            (GpgVerdict::Forward, _) if in_inquiry => {
                to_agent.push(line);
                if !request.continues_inquiry() {
                    self.phase = Phase::EndedInquiry;
                    self.core.step(Event::ClientDataReceived);
                }
            }
            (GpgVerdict::Describe, _) => {
                let text = request.command().map_or(&b""[..], |command| command.arguments);
                to_agent.push(&self.gate.describe(text));
                self.phase = Phase::OPEN;
                self.core.step(Event::ClientDataReceived);
            }
            (GpgVerdict::Forward, _) => {
                to_agent.push(line);
                let command = request.command().filter(|_| self.gate.policy().heal);
                let keyinfo = command.and_then(|command| keyinfo_keygrip(&command));
                self.phase = Phase::Open { keyinfo };
                self.core.bye = request.is_bye();
                self.core.step(Event::ClientDataReceived);
            }
            // An operation never comes here.
            (GpgVerdict::Skip | GpgVerdict::Operate, _) => {}
            (GpgVerdict::Answer(_) | GpgVerdict::ListKeys { .. }, _) if in_inquiry => {
                to_agent.push(CANCEL);
                self.phase = Phase::DeniedInquiry(Reply::Forbidden);
                self.core.step(Event::ClientDataReceived);
            }
            (GpgVerdict::Answer(reply), _) => to_client.push(reply.line()),
            (GpgVerdict::ListKeys { limit }, _) => list_keys(self.gate.lent(), limit, to_client),
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
            Err(error @ SessionError::InquiryEndedEarly) => {
                // The client has its answer.
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
                Operation::answered(&mut self.operation, line, self.now);
                self.gate.answered(ok);
                self.answered(Phase::OPEN);
            }
            Meaning::EndOfInquired { ok } => {
                to_client.push(line);
                Operation::answered(&mut self.operation, line, self.now);
                self.gate.answered(ok);
                self.check_step();
            }
            Meaning::EarlyEnd => {
                to_client.push(line);
                Operation::answered(&mut self.operation, line, self.now);
                self.core.fail_silently(SessionError::InquiryEndedEarly);
                return Ok(input.len());
            }
            Meaning::InStep => self.answered(Phase::OPEN),
            Meaning::Described(kind) => {
                self.gate.answered(true);
                self.core.step(Event::AgentDataReceived);
                self.wait_for_turn(kind, false);
            }
            Meaning::Inquire => {
                to_client.push(line);
                if let Some(operation) = &mut self.operation {
                    operation.pause();
                }
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
                if let Phase::DeniedInquiry(reply) = self.phase {
                    to_client.push(reply.line());
                }
                self.operation = None;
                self.gate.answered(false);
                self.check_step();
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
            | Phase::Turn { .. }
            | Phase::Describing(_)
            | Phase::EndedInquiry
            | Phase::DeniedInquiry(_)
            | Phase::InStep
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

    fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        let Phase::Turn { .. } = self.phase else { return Poll::Pending };
        if let Some(operation) = &self.operation
            && operation.poll(context).is_pending()
        {
            return Poll::Pending;
        }
        match &self.keys {
            Some(keys) if keys.is_asked() => keys.poll(context),
            Some(_) | None => Poll::Ready(()),
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.now = Some(now);
        self.core.timeout(now);
        if self.core.state == State::SendingToAgent {
            self.take_turn();
        }
    }

    fn left_operation(&mut self) -> Option<LeftOperation> {
        // The agent would answer the text, and no dialog is open.
        let is_asked = !matches!(self.phase, Phase::Describing(_));
        self.operation.take().filter(|_| is_asked).and_then(LeftOperation::of_gpg)
    }

    fn cleanup(&mut self) -> Option<Cleanup> {
        // Others needn't wait until the client has read its last answer.
        if let Some(keys) = &self.keys {
            keys.forget();
        }
        self.operation = None;
        self.core.take_cleanup()
    }

    fn agent_closed(&mut self, had_error: bool) {
        let client_waits = self.owes_an_answer();
        self.core.agent_closed(had_error, client_waits);
    }

    fn agent_took(&mut self, count: usize, now: Instant) {
        self.now = Some(now);
        self.core.to_agent.took(count);
        let waits = matches!(self.phase, Phase::Turn { .. });
        if waits || self.core.state != State::SendingToAgent || !self.core.to_agent.is_empty() {
            return;
        }
        self.core.step(Event::AgentWriteOk);
        match self.phase {
            Phase::Opening { .. } => self.continue_opening(),
            Phase::Greeting | Phase::Proof { .. } | Phase::Turn { .. } => {}
            Phase::Open { .. }
            | Phase::Describing(_)
            | Phase::Inquiry
            | Phase::EndedInquiry
            | Phase::DeniedInquiry(_)
            | Phase::InStep
            | Phase::KeyinfoFallback(_) => {
                self.core.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            }
        }
    }
}

impl AgentSession {
    /// Has the line wait with which the agent begins to work on an operation, or goes on.
    fn wait_for_turn(&mut self, kind: KeyOperation, in_inquiry: bool) {
        self.phase = Phase::Turn { kind, in_inquiry };
        self.core.step(Event::ClientDataReceived);
        self.take_turn();
    }

    /// Sends the line whose turn has come, if it is allowed with the keys that are lent now.
    fn take_turn(&mut self) {
        let Phase::Turn { kind, in_inquiry } = self.phase else { return };
        let Some(now) = self.now else { return };
        if let Some(operation) = &mut self.operation {
            operation.drive(now);
        }
        let waits = |one: &Operation| !one.may_begin() && one.refuse(now).is_none();
        if self.operation.as_ref().is_some_and(waits)
            || !has_keys_of_now(self.keys.as_ref(), &mut self.gate)
        {
            return;
        }
        let denial = match self.gate.judge_operation(kind) {
            GpgVerdict::Operate => {
                if self.operation.is_none() {
                    let keys = self.gate.keys_in_force();
                    self.operation = Operation::new(&self.operations, kind, keys, now);
                }
                match &self.operation {
                    Some(operation) => operation.refuse(now),
                    None => Some(Reply::NoSecretKey),
                }
            }
            GpgVerdict::Answer(reply) => Some(reply),
            GpgVerdict::Forward
            | GpgVerdict::Describe
            | GpgVerdict::ListKeys { .. }
            | GpgVerdict::Skip => Some(Reply::Forbidden),
        };
        match denial {
            // The keys are read again when its turn comes.
            None if !self.operation.as_ref().is_some_and(Operation::may_begin) => {}
            // In an inquiry the operation has begun, and its text is still in force.
            None if !self.gate.is_described() && !in_inquiry => {
                self.core.to_agent.push(&self.gate.describe(NO_TEXT));
                self.phase = Phase::Describing(kind);
            }
            None => {
                self.gate.operation_begins();
                self.core.to_agent.push(&self.waiting);
                self.phase = if in_inquiry { Phase::EndedInquiry } else { Phase::OPEN };
            }
            Some(reply) if in_inquiry => {
                self.refuse_operation(kind, now);
                self.core.to_agent.push(CANCEL);
                self.phase = Phase::DeniedInquiry(reply);
            }
            Some(reply) => {
                tracing::debug!("an operation is refused");
                self.refuse_operation(kind, now);
                self.core.to_client.push(reply.line());
                self.core.step(Event::AgentWriteOk);
                self.answered(Phase::OPEN);
            }
        }
    }

    fn refuse_operation(&mut self, kind: KeyOperation, now: Instant) {
        match self.operation.take() {
            Some(operation) => operation.refused(now),
            None => Operation::refused_by_gate(&self.operations, kind, self.gate.refused_key()),
        }
    }

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

    /// A command with an inquiry was answered, and its answer is the client's. Before the next line of the
    /// client, the agent has to show that it read the data to its end.
    fn check_step(&mut self) {
        self.phase = Phase::InStep;
        self.core.expect_nothing();
        self.ask_agent(IN_STEP);
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
            _ if matches!(self.phase, Phase::InStep) => self.core.from_client.is_in_line(),
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

/// Whether a line ends an inquiry with data.
fn is_end(request: &RequestLine<'_>) -> bool {
    request.command().is_some_and(|command| command.verb.is("END"))
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
