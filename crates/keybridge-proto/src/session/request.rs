//! The request session: target side, one for each client.

mod machine;

use std::time::Instant;

use super::exchange::Exchange;
use super::{Cleanup, Limits, Peer, SessionError};
use crate::assuan::{NotAResponse, RequestLine, ResponseLine, content};

pub use machine::{Event, State, transition};

/// Drives the machine with bytes and time. Owned by whoever owns the client's socket, and over when
/// its state is Disconnected again, or Fatal.
#[derive(Debug)]
pub struct RequestSession {
    limits: Limits,
    exchange: Exchange<State>,
    /// The event that follows when the end of the response has been taken by the client.
    after_response: Event,
}

impl RequestSession {
    /// A session without a client.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            exchange: Exchange::new(State::Disconnected),
            after_response: Event::ResponseOkOrErr,
        }
    }

    /// A client connected; the agent is to be reached.
    pub fn client_connected(&mut self, now: Instant) {
        self.exchange.expect_within(now, self.limits.connect, SessionError::ConnectTimeout);
        self.exchange.step(Event::ClientSocketConnected);
    }

    /// The way to the agent is open; its greeting comes next.
    pub fn agent_connected(&mut self, now: Instant) {
        if self.exchange.state == State::ConnectingToAgent {
            self.exchange.expect_within(now, self.limits.greeting, SessionError::GreetingTimeout);
        }
    }

    /// The agent can't be reached.
    pub fn agent_unreachable(&mut self, reason: impl Into<String>) {
        self.exchange.fail(SessionError::Unreachable(reason.into()));
    }

    /// Whether bytes of the client can be taken now. What comes at other times waits in its socket.
    pub fn takes_client_bytes(&self) -> bool {
        match self.exchange.state {
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
            if self.exchange.state == State::Ready {
                self.exchange.step(Event::ClientDataStart);
            }
            let cut = match self.exchange.from_client.cut(rest) {
                Ok(cut) => cut,
                Err(error) => {
                    self.exchange.fail(SessionError::LineTooLong { from: Peer::Client, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else {
                self.exchange.step(Event::ClientDataPartial);
                break;
            };
            let request = match RequestLine::parse(line) {
                Ok(request) => request,
                Err(error) => {
                    self.exchange.fail(error.into());
                    return input.len();
                }
            };
            self.exchange.to_agent.push(line);
            let answered = if self.exchange.state == State::BufferingInquire {
                !request.continues_inquiry()
            } else {
                request.is_answered()
            };
            if answered {
                self.exchange.bye = request.is_bye();
                self.exchange.step(Event::ClientDataComplete);
            } else {
                self.exchange.step(Event::ClientDataPartial);
            }
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
        self.exchange.client_closed(had_error);
    }

    /// Whether bytes of the agent can be taken now.
    pub fn takes_agent_bytes(&self) -> bool {
        match self.exchange.state {
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
                    self.exchange.fail(SessionError::LineTooLong { from: Peer::Agent, error });
                    return input.len();
                }
            };
            taken += cut.taken;
            let Some(line) = cut.line else { break };
            let kind = ResponseLine::parse(line);
            match judge(self.exchange.state, kind, content(line).len()) {
                Ok(None) => self.exchange.to_client.push(line),
                Ok(Some(event)) => {
                    self.exchange.to_client.push(line);
                    self.exchange.expect_nothing();
                    self.after_response = if kind == Ok(ResponseLine::Inquire) {
                        Event::ResponseInquire
                    } else {
                        Event::ResponseOkOrErr
                    };
                    self.exchange.step(event);
                    self.close_if_client_is_done();
                }
                Err(error @ SessionError::GreetingErr(_)) => {
                    // The client then fails with the agent's own error.
                    self.exchange.to_client.push(line);
                    self.exchange.fail_silently(error);
                    return input.len();
                }
                Err(error) => {
                    self.exchange.fail(error);
                    return input.len();
                }
            }
        }
        taken
    }

    /// The agent's connection closed. To be called when all of its bytes have been taken.
    pub fn agent_closed(&mut self, had_error: bool) {
        let client_waits = self.exchange.state.owes_an_answer();
        self.exchange.agent_closed(had_error, client_waits);
    }

    /// What is to be sent to the agent.
    pub fn to_agent(&self) -> &[u8] {
        self.exchange.to_agent.pending()
    }

    /// The way to the agent took so many bytes.
    pub fn agent_took(&mut self, count: usize, now: Instant) {
        self.exchange.to_agent.took(count);
        if self.exchange.state == State::SendingToAgent && self.exchange.to_agent.is_empty() {
            self.exchange.expect_within(now, self.limits.response, SessionError::ResponseTimeout);
            self.exchange.step(Event::WriteOk);
        }
    }

    /// What is to be sent to the client.
    pub fn to_client(&self) -> &[u8] {
        self.exchange.to_client.pending()
    }

    /// The client took so many bytes.
    pub fn client_took(&mut self, count: usize) {
        self.exchange.to_client.took(count);
        if self.exchange.state == State::SendingToClient && self.exchange.to_client.is_empty() {
            self.exchange.step(Event::WriteOk);
            self.exchange.step(self.after_response);
            self.close_if_client_is_done();
        }
    }

    /// When [`Self::timeout`] wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.exchange.deadline()
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: Instant) {
        self.exchange.timeout(now);
    }

    /// The work of ending the session, once.
    pub fn cleanup(&mut self) -> Option<Cleanup> {
        self.exchange.take_cleanup()
    }

    /// How the work of ending the session went.
    pub fn cleanup_done(&mut self, outcome: Result<(), impl std::fmt::Display>) {
        self.exchange.cleanup_done(outcome);
    }

    /// Where the session stands.
    pub const fn state(&self) -> State {
        self.exchange.state
    }

    /// The first error, if there was one.
    pub fn error(&self) -> Option<&SessionError> {
        self.exchange.error()
    }

    /// Nothing more comes from the client: nothing is left to do once no answer is under way.
    fn close_if_client_is_done(&mut self) {
        let idle = match self.exchange.state {
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
            self.exchange.close();
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
