//! The agent session: host side, one for each stream of the gpg lane.
//!
//! Before the client's first byte the session opens the socket, reads the greeting and has the
//! socket prove that it is restricted. `D` lines of an inquiry pass in Ready: the agent doesn't
//! answer them.

mod keyinfo_fallback;
mod machine;
mod phase;

use std::sync::Arc;
use std::time::Instant;

use super::core::SessionCore;
use super::outbox::Outbox;
use super::{Cleanup, Limits, Peer, SessionError};
use crate::Secret;
use crate::assuan::{Reply, RequestLine};
use crate::gate::{AgentSocket, GpgGate, GpgVerdict, LentKeys, Policy};
use crate::socket_file::{Opening, Step};
use keyinfo_fallback::{KeyinfoFallback, keyinfo_keygrip};
use phase::{Meaning, Phase, judge};

pub use machine::{Event, State, transition};

/// Drives the machine with bytes and time. Owned by whoever owns the stream, and over when its state
/// is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct AgentSession {
    phase: Phase,
    limits: Limits,
    gate: GpgGate,
    /// The key that a `KEYINFO` under way is about, where its refusal can be healed.
    healable: Option<[u8; 40]>,
    core: SessionCore<State>,
}

/// Ends an inquiry without data.
const CALL_OFF: &[u8] = b"CAN\n";

/// Answered with OK by a restricted socket alone.
const PROOF: &[u8] = b"GETINFO restricted\n";

impl AgentSession {
    /// A session without a connection, for a client that may use these keys.
    pub fn new(policy: Policy, lent: Arc<LentKeys>, limits: Limits) -> Self {
        Self {
            phase: Phase::Greeting,
            limits,
            gate: GpgGate::new(policy, lent),
            healable: None,
            core: SessionCore::new(State::Disconnected),
        }
    }

    /// These keys may be used, for a session that begins before they are known. To be called before the
    /// agent is connected.
    pub fn lend(&mut self, lent: Arc<LentKeys>) {
        self.gate.lend(lent);
    }

    /// A client wants to talk to the agent; the agent's socket is to be dialled.
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
        self.phase = Phase::Opening { opening, came: Secret::new(Vec::new()) };
        self.continue_opening();
        if self.core.state == State::SocketConnected {
            // A Unix socket has nothing to be sent first.
            self.core.step(Event::ClientDataReceived);
            self.core.step(Event::AgentWriteOk);
        }
    }

    /// The agent can't be reached.
    pub fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.core.fail(SessionError::Unreachable(reason.into()));
    }

    /// Whether bytes of the client can be taken now. What comes at other times has to wait.
    pub fn takes_client_bytes(&self) -> bool {
        let open = match self.phase {
            Phase::Open | Phase::Inquiry => true,
            Phase::Opening { .. }
            | Phase::Greeting
            | Phase::Proof { .. }
            | Phase::DeniedInquiry
            | Phase::KeyinfoFallback(_) => false,
        };
        open && self.core.state == State::Ready && self.core.has_room_for_client_bytes()
    }

    /// Takes bytes of the client, up to the end of a command at most; says how many.
    pub fn client_bytes(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty())
            && self.takes_client_bytes()
        {
            let SessionCore { from_client, to_agent, to_client, .. } = &mut self.core;
            let cut = match from_client.cut(rest) {
                Ok(cut) => cut,
                Err(error) => {
                    self.core.fail(SessionError::LineTooLong { from: Peer::Client, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else { break };
            let request = match RequestLine::parse(line) {
                Ok(request) => request,
                Err(error) => {
                    self.core.fail(error.into());
                    return input.len();
                }
            };
            let in_inquiry = matches!(self.phase, Phase::Inquiry);
            let verdict = if in_inquiry {
                GpgGate::judge_in_inquiry(&request)
            } else {
                self.gate.judge(&request)
            };
            match verdict {
                GpgVerdict::Forward => to_agent.push(line),
                GpgVerdict::Skip => continue,
                GpgVerdict::Answer(_) | GpgVerdict::ListKeys { .. } if in_inquiry => {
                    to_agent.push(CALL_OFF);
                    self.phase = Phase::DeniedInquiry;
                    self.core.step(Event::ClientDataReceived);
                    break;
                }
                GpgVerdict::Answer(reply) => {
                    to_client.push(reply.line());
                    continue;
                }
                GpgVerdict::ListKeys { limit } => {
                    list_keys(self.gate.lent(), limit, to_client);
                    continue;
                }
            }
            if !(in_inquiry && request.continues_inquiry()) {
                self.phase = Phase::Open;
                self.healable = match request.command() {
                    Some(command) if self.gate.policy().heal => keyinfo_keygrip(&command),
                    Some(_) | None => None,
                };
                self.core.bye = request.is_bye();
                self.core.step(Event::ClientDataReceived);
            }
        }
        taken
    }

    /// The client's input is at its end; what it asked is still answered. To be called when all of
    /// its bytes have been taken.
    pub fn client_eof(&mut self) {
        self.core.client_eof = true;
        self.close_if_client_is_done();
    }

    /// The client hung up. The agent's connection is closed at once; gpg-agent 2.4 and later then closes
    /// its pinentry.
    pub fn client_closed(&mut self, had_error: bool) {
        self.core.client_closed(had_error);
    }

    /// Whether bytes of the agent can be taken now.
    pub fn takes_agent_bytes(&self) -> bool {
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

    /// Takes bytes of the agent; says how many.
    pub fn agent_bytes(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty())
            && self.takes_agent_bytes()
        {
            if let Phase::Opening { opening, came } = &mut self.phase {
                let Step::Receive(count) = opening.step() else { break };
                let missing = count.saturating_sub(came.expose().len());
                let part = rest.get(..missing).unwrap_or(rest);
                taken += part.len();
                came.extend(part);
                if came.expose().len() < count {
                    self.core.step(Event::AgentDataChunk);
                    break;
                }
                if let Err(error) = opening.received(came.expose()) {
                    self.core.fail(SessionError::Opening(error.to_string()));
                    return input.len();
                }
                *came = Secret::new(Vec::new());
                self.continue_opening();
                continue;
            }
            let SessionCore { from_agent, to_client, state, .. } = &mut self.core;
            let cut = match from_agent.cut(rest) {
                Ok(cut) => cut,
                Err(error) => {
                    self.core.fail(SessionError::LineTooLong { from: Peer::Agent, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else {
                self.core.step(Event::AgentDataChunk);
                break;
            };
            match judge(&self.phase, self.healable.is_some(), *state, line) {
                Ok(Meaning::Part) => {
                    to_client.push(line);
                    self.core.step(Event::AgentDataChunk);
                }
                Ok(Meaning::Swallowed) => self.core.step(Event::AgentDataChunk),
                Ok(Meaning::Greeting) => {
                    let greeting = line.to_vec();
                    self.greeted(greeting);
                }
                Ok(Meaning::Proven) => {
                    if let Phase::Proof { greeting } = &self.phase {
                        to_client.push(greeting);
                    }
                    self.answered(Phase::Open);
                }
                Ok(Meaning::End { ok }) => {
                    to_client.push(line);
                    self.gate.answered(ok);
                    self.answered(Phase::Open);
                }
                Ok(Meaning::Inquire) => {
                    to_client.push(line);
                    self.answered(Phase::Inquiry);
                }
                Ok(Meaning::Refusal) => {
                    let refusal = line.to_vec();
                    self.heal(&refusal);
                }
                Ok(Meaning::EndOfFallback { has_key }) => {
                    if let Phase::KeyinfoFallback(heal) = &self.phase {
                        to_client.push(&heal.answer(has_key));
                    }
                    self.answered(Phase::Open);
                }
                Ok(Meaning::EndOfDenied) => {
                    to_client.push(Reply::Forbidden.line());
                    self.gate.answered(false);
                    self.answered(Phase::Open);
                }
                Ok(Meaning::InquireAfterDenied) => {
                    self.core.step(Event::AgentDataReceived);
                    self.core.to_agent.push(CALL_OFF);
                    self.core.step(Event::ClientDataReceived);
                }
                Err(error @ SessionError::GreetingErr(_)) => {
                    // The client then fails with the agent's own error.
                    to_client.push(line);
                    self.core.fail_silently(error);
                    return input.len();
                }
                Err(error) => {
                    self.core.fail(error);
                    return input.len();
                }
            }
        }
        taken
    }

    /// The agent's connection closed. To be called when all of its bytes have been taken.
    pub fn agent_closed(&mut self, had_error: bool) {
        let client_waits = self.owes_an_answer();
        self.core.agent_closed(had_error, client_waits);
    }

    /// What is to be sent to the agent.
    pub fn to_agent(&self) -> &[u8] {
        self.core.to_agent.pending()
    }

    /// The agent's socket took so many bytes.
    pub fn agent_took(&mut self, count: usize, now: Instant) {
        self.core.to_agent.took(count);
        if self.core.state != State::SendingToAgent || !self.core.to_agent.is_empty() {
            return;
        }
        self.core.step(Event::AgentWriteOk);
        match self.phase {
            Phase::Opening { .. } => self.continue_opening(),
            Phase::Greeting | Phase::Proof { .. } => {}
            Phase::Open | Phase::Inquiry | Phase::DeniedInquiry | Phase::KeyinfoFallback(_) => {
                self.core.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            }
        }
    }

    /// What is to be sent to the client.
    pub fn to_client(&self) -> &[u8] {
        self.core.to_client.pending()
    }

    /// The way to the client took so many bytes.
    pub fn client_took(&mut self, count: usize) {
        self.core.to_client.took(count);
    }

    /// When [`Self::timeout`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.core.deadline()
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant) {
        self.core.timeout(now);
    }

    /// The work of ending the session, once.
    pub fn cleanup(&mut self) -> Option<Cleanup> {
        self.core.take_cleanup()
    }

    /// How the work of ending the session went.
    pub fn cleanup_done(&mut self, outcome: Result<(), impl std::fmt::Display>) {
        self.core.cleanup_done(outcome);
    }

    /// Where the session stands.
    pub const fn state(&self) -> State {
        self.core.state
    }

    /// Whether the agent waits for data of the client rather than for a command.
    pub const fn is_in_inquiry(&self) -> bool {
        matches!(self.phase, Phase::Inquiry)
    }

    /// The first error, if there was one.
    pub fn error(&self) -> Option<&SessionError> {
        self.core.error()
    }

    /// Makes the next moves of the opening exchange that are ours.
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
                self.core.step(Event::AgentDataReceived);
                self.core.to_agent.push(PROOF);
                self.core.step(Event::ClientDataReceived);
            }
            AgentSocket::Main => {
                self.core.to_client.push(&greeting);
                self.answered(Phase::Open);
            }
        }
    }

    /// The agent forbids what an older one forbids: it is asked in another way.
    fn heal(&mut self, refusal: &[u8]) {
        let Some(keygrip) = self.healable.take() else { return };
        tracing::debug!("healing a KEYINFO that the agent forbids");
        let heal = KeyinfoFallback::new(keygrip, refusal);
        self.core.step(Event::AgentDataReceived);
        self.core.to_agent.push(&heal.question());
        self.core.step(Event::ClientDataReceived);
        self.phase = Phase::KeyinfoFallback(heal);
    }

    /// A response is complete, and it is the client's turn.
    fn answered(&mut self, phase: Phase) {
        self.phase = phase;
        self.core.expect_nothing();
        self.core.step(Event::AgentDataReceived);
        self.close_if_client_is_done();
    }

    /// Nothing more comes from the client: nothing is left to do once no answer is under way.
    fn close_if_client_is_done(&mut self) {
        if self.core.client_eof && self.core.state == State::Ready {
            self.core.close();
        }
    }

    /// Whether the client waits for a line, so that it has to be told when none will come.
    const fn owes_an_answer(&self) -> bool {
        match self.core.state {
            State::ConnectingToAgent
            | State::SocketConnected
            | State::SendingToAgent
            | State::WaitingForAgent => true,
            State::Ready => self.is_in_inquiry(),
            State::Disconnected | State::Error | State::Closing | State::Fatal => false,
        }
    }
}

/// How many keygrips stand in a `D` line: each takes up to 60 bytes, if every byte is escaped.
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
