//! The request session: target side, one for each client.

use std::time::Instant;

use super::core::{HasCore, SessionCore};
use super::{Limits, Peer, Session, SessionError};
use crate::assuan::{Cut, NotAResponse, RequestLine, ResponseLine, Summary, content};

pub use crate::session::request_machine::{Event, State};

/// Drives the machine with bytes and time. Owned by the owner of the client's socket, and over when
/// its state is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct RequestSession {
    limits: Limits,
    core: SessionCore<State>,
    /// The event that follows when the response was sent to the client.
    after_response: Event,
}

impl RequestSession {
    /// A session without a client.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            core: SessionCore::new(State::Disconnected),
            after_response: Event::ResponseOkOrErr,
        }
    }

    /// A client connected; the agent is to be reached.
    pub fn client_connected(&mut self, now: Instant) {
        self.core.expect_within(now, self.limits.connect, SessionError::ConnectTimeout);
        self.core.step(Event::ClientSocketConnected);
    }

    /// The stream to the agent is open; the greeting comes next.
    pub fn agent_connected(&mut self, now: Instant) {
        if self.core.state == State::ConnectingToAgent {
            self.core.expect_within(now, self.limits.greeting, SessionError::GreetingTimeout);
        }
    }
}

impl HasCore for RequestSession {
    type State = State;

    fn core(&self) -> &SessionCore<State> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut SessionCore<State> {
        &mut self.core
    }

    /// Takes a line at most.
    fn take_from_client(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        if self.core.state == State::Ready {
            self.core.step(Event::ClientDataStart);
        }
        let too_long = |error| SessionError::LineTooLong { from: Peer::Client, error };
        let Cut { taken, line } = self.core.from_client.cut(input).map_err(too_long)?;
        let Some(line) = line else {
            self.core.step(Event::ClientDataPartial);
            return Ok(taken);
        };
        tracing::trace!("from the client: {}", Summary::of(line));
        let request = RequestLine::parse(line)?;
        self.core.to_agent.push(line);
        let answered = if self.core.state == State::BufferingInquire {
            !request.continues_inquiry()
        } else {
            request.is_answered()
        };
        if answered {
            self.core.bye = request.is_bye();
            self.core.step(Event::ClientDataComplete);
        } else {
            self.core.step(Event::ClientDataPartial);
        }
        Ok(taken)
    }

    /// Takes a line at most.
    fn take_from_agent(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        let too_long = |error| SessionError::LineTooLong { from: Peer::Agent, error };
        let Cut { taken, line } = self.core.from_agent.cut(input).map_err(too_long)?;
        let Some(line) = line else { return Ok(taken) };
        tracing::trace!("from the agent: {}", Summary::of(line));
        let kind = ResponseLine::parse(line);
        match judge(self.core.state, kind, content(line).len()) {
            Ok(None) => self.core.to_client.push(line),
            Ok(Some(event)) => {
                self.core.to_client.push(line);
                self.core.expect_nothing();
                self.after_response = if kind == Ok(ResponseLine::Inquire) {
                    Event::ResponseInquire
                } else {
                    Event::ResponseOkOrErr
                };
                self.core.step(event);
                self.close_if_client_is_done();
            }
            Err(error @ SessionError::GreetingErr(_)) => {
                // The client then fails with the agent's own error.
                self.core.to_client.push(line);
                self.core.fail_silently(error);
                return Ok(input.len());
            }
            Err(error) => return Err(error),
        }
        Ok(taken)
    }
}

impl Session for RequestSession {
    fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.core.fail(SessionError::Unreachable(reason.into()));
    }

    fn takes_client_bytes(&self) -> bool {
        self.core.state.is_clients_turn() && self.core.has_room_for_client_bytes()
    }

    fn client_eof(&mut self) {
        self.core.client_eof = true;
        self.close_if_client_is_done();
    }

    fn takes_agent_bytes(&self) -> bool {
        match self.core.state {
            State::ConnectingToAgent
            | State::Ready
            | State::BufferingCommand
            | State::BufferingInquire
            | State::WaitingForAgent => self.core.to_client.has_room(),
            State::Disconnected
            | State::SendingToAgent
            | State::SendingToClient
            | State::Error
            | State::Closing
            | State::Fatal => false,
        }
    }

    fn agent_closed(&mut self, had_error: bool) {
        let client_waits = self.core.state.owes_an_answer();
        self.core.agent_closed(had_error, client_waits);
    }

    fn agent_took(&mut self, count: usize, now: Instant) {
        self.core.to_agent.took(count);
        if self.core.state == State::SendingToAgent && self.core.to_agent.is_empty() {
            self.core.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            self.core.step(Event::WriteOk);
        }
    }

    fn client_took(&mut self, count: usize) {
        self.core.to_client.took(count);
        if self.core.state == State::SendingToClient && self.core.to_client.is_empty() {
            self.core.step(Event::WriteOk);
            self.core.step(self.after_response);
            self.close_if_client_is_done();
        }
    }
}

impl RequestSession {
    /// Closes the session if the client's input has ended and no answer is due.
    fn close_if_client_is_done(&mut self) {
        if self.core.state.is_clients_turn() && self.core.client_eof {
            self.core.close();
        }
    }
}

/// What a line of the agent means in a state: an event, nothing, or an error.
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
