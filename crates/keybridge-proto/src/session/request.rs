//! The request session: target side, one for each client.

mod machine;

use std::time::Instant;

use super::exchange::{Deadline, Exchange};
use super::{Cleanup, Limits, Peer, SessionError};
use crate::assuan::{NotAResponse, Reply, RequestLine, ResponseLine, content};

pub use machine::{Event, State, transition};

/// Drives the machine with bytes and time. Owned by whoever owns the client's socket, and over when
/// its state is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct RequestSession {
    state: State,
    limits: Limits,
    exchange: Exchange,
    /// The event that follows when the end of the response has been taken by the client.
    after_response: Event,
}

impl RequestSession {
    /// A session without a client.
    pub fn new(limits: Limits) -> Self {
        Self {
            state: State::Disconnected,
            limits,
            exchange: Exchange::default(),
            after_response: Event::ResponseOkOrErr,
        }
    }

    /// A client connected; the agent is to be reached.
    pub fn client_connected(&mut self, now: Instant) {
        let limit = self.limits.connect;
        self.exchange.deadline =
            Some(Deadline { at: now + limit, error: SessionError::ConnectTimeout(limit) });
        self.step(Event::ClientSocketConnected);
    }

    /// The way to the agent is open; its greeting comes next.
    pub fn agent_connected(&mut self, now: Instant) {
        if self.state == State::ConnectingToAgent {
            let limit = self.limits.greeting;
            self.exchange.deadline =
                Some(Deadline { at: now + limit, error: SessionError::GreetingTimeout(limit) });
        }
    }

    /// The agent can't be reached.
    pub fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.fail(SessionError::Unreachable(reason.into()));
    }

    /// Whether bytes of the client can be taken now. What comes at other times waits in its socket.
    pub fn takes_client_bytes(&self) -> bool {
        match self.state {
            State::Ready | State::BufferingCommand | State::BufferingInquire => {
                self.exchange.has_room_for_client_bytes()
            }
            State::Disconnected
            | State::ConnectingToAgent
            | State::SendingToAgent
            | State::WaitingForAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    /// Takes bytes of the client, up to the end of a command at most; says how many.
    pub fn client_bytes(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty())
            && self.takes_client_bytes()
        {
            if self.state == State::Ready {
                self.step(Event::ClientDataStart);
            }
            let cut = match self.exchange.from_client.cut(rest) {
                Ok(cut) => cut,
                Err(error) => {
                    self.fail(SessionError::LineTooLong { from: Peer::Client, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else {
                self.step(Event::ClientDataPartial);
                break;
            };
            let request = match RequestLine::parse(line) {
                Ok(request) => request,
                Err(error) => {
                    self.fail(error.into());
                    return input.len();
                }
            };
            self.exchange.to_agent.push(line);
            self.exchange.bye = request.is_bye();
            let answered = if self.state == State::BufferingInquire {
                !request.continues_inquiry()
            } else {
                request.is_answered()
            };
            self.step(if answered { Event::ClientDataComplete } else { Event::ClientDataPartial });
        }
        taken
    }

    /// The client's input is at its end; what it asked is still answered. To be called when all of
    /// its bytes have been taken.
    pub fn client_eof(&mut self) {
        self.exchange.client_eof = true;
        self.close_if_client_is_done();
    }

    /// The client hung up, or a write to it failed.
    pub fn client_closed(&mut self, had_error: bool) {
        if !self.state.is_live() {
            return;
        }
        if had_error {
            self.fail(SessionError::Broken(Peer::Client));
        } else {
            self.close();
        }
        self.exchange.to_client.clear();
    }

    /// Whether bytes of the agent can be taken now.
    pub fn takes_agent_bytes(&self) -> bool {
        match self.state {
            State::ConnectingToAgent
            | State::Ready
            | State::BufferingCommand
            | State::BufferingInquire
            | State::WaitingForAgent => self.exchange.to_client.has_room(),
            State::Disconnected
            | State::SendingToAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    /// Takes bytes of the agent, up to the end of a response at most; says how many.
    pub fn agent_bytes(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty())
            && self.takes_agent_bytes()
        {
            let cut = match self.exchange.from_agent.cut(rest) {
                Ok(cut) => cut,
                Err(error) => {
                    self.fail(SessionError::LineTooLong { from: Peer::Agent, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else { break };
            let kind = ResponseLine::parse(line);
            match judge(self.state, kind, content(line).len()) {
                Ok(None) => self.exchange.to_client.push(line),
                Ok(Some(event)) => {
                    self.exchange.to_client.push(line);
                    self.exchange.deadline = None;
                    self.after_response = if kind == Ok(ResponseLine::Inquire) {
                        Event::ResponseInquire
                    } else {
                        Event::ResponseOkOrErr
                    };
                    self.step(event);
                    self.close_if_client_is_done();
                }
                Err(error @ SessionError::GreetingErr(_)) => {
                    // The client then fails with the agent's own error.
                    self.exchange.to_client.push(line);
                    self.fail_silently(error);
                    return input.len();
                }
                Err(error) => {
                    self.fail(error);
                    return input.len();
                }
            }
        }
        taken
    }

    /// The agent's connection closed. To be called when all of its bytes have been taken.
    pub fn agent_closed(&mut self, had_error: bool) {
        if !self.state.is_live() {
            return;
        }
        let clean = self.exchange.bye || !had_error;
        if self.state.owes_an_answer() && !self.exchange.bye {
            self.exchange.to_client.push(Reply::NoAgent.line());
        }
        if clean {
            self.close();
        } else {
            self.fail_silently(SessionError::Broken(Peer::Agent));
        }
    }

    /// What is to be sent to the agent.
    pub fn to_agent(&self) -> &[u8] {
        self.exchange.to_agent.pending()
    }

    /// The way to the agent took so many bytes.
    pub fn agent_took(&mut self, count: usize, now: Instant) {
        self.exchange.to_agent.took(count);
        if self.state == State::SendingToAgent && self.exchange.to_agent.is_empty() {
            self.exchange.deadline = self.limits.response.map(|limit| Deadline {
                at: now + limit,
                error: SessionError::ResponseTimeout(limit),
            });
            self.step(Event::WriteOk);
        }
    }

    /// What is to be sent to the client.
    pub fn to_client(&self) -> &[u8] {
        self.exchange.to_client.pending()
    }

    /// The client took so many bytes.
    pub fn client_took(&mut self, count: usize) {
        self.exchange.to_client.took(count);
        if self.state == State::SendingToClient && self.exchange.to_client.is_empty() {
            self.step(Event::WriteOk);
            self.step(self.after_response);
            self.close_if_client_is_done();
        }
    }

    /// When [`Self::timeout`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.exchange.deadline.as_ref().map(|deadline| deadline.at)
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant) {
        if let Some(error) = self.exchange.expired(now) {
            self.fail(error);
        }
    }

    /// The work of ending the session, once.
    pub fn cleanup(&mut self) -> Option<Cleanup> {
        self.exchange.take_cleanup()
    }

    /// How the work of ending the session went.
    pub fn cleanup_done(&mut self, outcome: Result<(), impl std::fmt::Display>) {
        if self.state != State::Closing {
            return;
        }
        match outcome {
            Ok(()) => self.step(Event::CleanupComplete),
            Err(error) => {
                let error = SessionError::Cleanup(error.to_string());
                self.exchange.error.get_or_insert(error);
                self.step(Event::CleanupError);
            }
        }
    }

    /// Where the session stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The first error, if there was one.
    pub const fn error(&self) -> Option<&SessionError> {
        self.exchange.error.as_ref()
    }

    /// Nothing more comes from the client: nothing is left to do once no answer is under way.
    fn close_if_client_is_done(&mut self) {
        let idle = match self.state {
            State::Ready | State::BufferingCommand | State::BufferingInquire => true,
            State::Disconnected
            | State::ConnectingToAgent
            | State::SendingToAgent
            | State::WaitingForAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        };
        if idle && self.exchange.client_eof {
            self.close();
        }
    }

    /// Ends with an error that the client is told of.
    fn fail(&mut self, error: SessionError) {
        if self.state.is_live() {
            self.exchange.to_client.push(error.farewell().line());
            self.fail_silently(error);
        }
    }

    fn fail_silently(&mut self, error: SessionError) {
        if self.state.is_live() {
            self.exchange.error.get_or_insert(error);
            self.step(Event::ErrorOccurred);
            self.step(Event::CleanupRequested { had_error: true });
            self.exchange.end(true);
        }
    }

    fn close(&mut self) {
        self.step(Event::CleanupRequested { had_error: false });
        self.exchange.end(false);
    }

    fn step(&mut self, event: Event) {
        match transition(self.state, event) {
            Ok(next) => {
                tracing::trace!(from = self.state.name(), event = event.name(), to = next.name());
                self.state = next;
            }
            Err(invalid) => {
                debug_assert!(false, "{invalid}");
                self.exchange.error.get_or_insert(invalid.into());
            }
        }
    }
}

/// What a line of the agent means in a state: the event it brings, if any, or an error.
fn judge(
    state: State,
    kind: Result<ResponseLine, NotAResponse>,
    size: usize,
) -> Result<Option<Event>, SessionError> {
    match state {
        State::ConnectingToAgent => match kind {
            Ok(ResponseLine::Ok) => Ok(Some(Event::AgentGreetingOk)),
            Ok(ResponseLine::Err(code)) => Err(SessionError::GreetingErr(code)),
            Ok(_) | Err(_) => Err(SessionError::NotAGreeting { size }),
        },
        State::BufferingInquire if kind == Ok(ResponseLine::Inquire) => {
            Err(SessionError::NestedInquiry)
        }
        State::WaitingForAgent | State::BufferingInquire => {
            Ok(kind?.is_complete().then_some(Event::AgentResponseComplete))
        }
        State::Ready
        | State::BufferingCommand
        | State::Disconnected
        | State::SendingToAgent
        | State::SendingToClient
        | State::Error
        | State::Closing
        | State::Fatal => {
            if kind?.is_ignored() {
                Ok(None)
            } else {
                Err(SessionError::Unasked { size })
            }
        }
    }
}
