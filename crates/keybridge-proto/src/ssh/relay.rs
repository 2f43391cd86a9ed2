//! The session of the ssh lane: target side, one for each client.
//!
//! Bytes pass in order and unchanged; the host's side judges them. The relay only counts the requests
//! that are unanswered. When the link is lost, each of them and every later one gets a failure: clients
//! then report a refusal instead of a broken connection, and ssh continues with the keys it has. A client
//! that has a part of an answer can only be closed.

use std::time::Instant;

use super::frame::FAILURE;
use super::session::PIECE;
use super::{Cut, SessionError};
use crate::session::core::{HasCore, SessionCore};
use crate::session::{Peer, Session};

pub use crate::ssh::relay_machine::{Event, State};

/// Drives the machine with bytes. Owned by the owner of the client's socket, and over when its state
/// is Disconnected again, or Fatal.
///
/// ```
/// # use keybridge_proto::session::Session;
/// # use keybridge_proto::ssh::{RelaySession, Request};
/// let mut relay = RelaySession::connected();
/// relay.agent_connected();
/// assert_eq!(relay.client_bytes(&Request::LIST), 5);
/// assert_eq!(relay.to_agent(), Request::LIST);
/// relay.agent_closed(true);
/// assert_eq!(relay.to_client(), [0, 0, 0, 1, 5]);
/// assert!(!relay.is_over());
/// ```
#[derive(Debug)]
pub struct RelaySession {
    /// How many requests have no complete answer of the agent.
    unanswered: u64,
    /// How many failures are due that don't fit into the outbox yet.
    owed: u64,
    /// The client has sent an invalid frame. The host gets it too, answers it and hangs up.
    is_astray: bool,
    core: SessionCore<State>,
}

impl RelaySession {
    /// A session of a client that has just connected; the agent is to be reached.
    pub fn connected() -> Self {
        let mut core = SessionCore::new(State::Disconnected);
        core.step(Event::ClientSocketConnected);
        Self { unanswered: 0, owed: 0, is_astray: false, core }
    }

    /// The stream to the agent is open.
    pub fn agent_connected(&mut self) {
        self.core.step(Event::StreamOpened);
    }

    /// Refuses what the agent hasn't answered.
    fn refuse_unanswered(&mut self) {
        self.owed += std::mem::take(&mut self.unanswered);
        self.answer_owed();
    }

    fn answer_owed(&mut self) {
        while self.owed > 0 && self.core.to_client.has_room() {
            self.owed -= 1;
            self.core.to_client.push(&FAILURE);
        }
    }

    /// Ends the session if the client's input has ended and no answer is due. A request that is cut short
    /// is refused here: the agent never gets the rest of it.
    fn close_if_client_is_done(&mut self) {
        if self.is_over() || !self.core.client_eof || self.unanswered + self.owed > 0 {
            return;
        }
        if self.core.from_client.is_between_frames() {
            self.core.close();
        } else {
            self.core.to_client.push(&FAILURE);
            self.core.fail_silently(SessionError::CutShort(Peer::Client));
        }
    }
}

impl HasCore for RelaySession {
    type State = State;

    fn core(&self) -> &SessionCore<State> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut SessionCore<State> {
        &mut self.core
    }

    fn take_from_client(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        let SessionCore { state, from_client, to_agent, to_client, .. } = &mut self.core;
        let is_relaying = *state == State::Relaying;
        let piece = input.get(..PIECE).unwrap_or(input);
        match from_client.cut(piece) {
            Ok(Cut { taken, .. }) => {
                let ends_request = from_client.is_between_frames();
                if is_relaying {
                    to_agent.push(piece.get(..taken).unwrap_or_default());
                    self.unanswered += u64::from(ends_request);
                } else if ends_request {
                    to_client.push(&FAILURE);
                }
                Ok(taken)
            }
            Err(_) if is_relaying => {
                to_agent.push(piece);
                self.unanswered += 1;
                self.is_astray = true;
                Ok(input.len())
            }
            Err(error) => Err(SessionError::Frame { from: Peer::Client, error }),
        }
    }

    fn take_from_agent(&mut self, input: &[u8]) -> Result<usize, SessionError> {
        let SessionCore { from_agent, to_client, .. } = &mut self.core;
        let not_a_frame = |error| SessionError::Frame { from: Peer::Agent, error };
        let piece = input.get(..PIECE).unwrap_or(input);
        let Cut { taken, .. } = from_agent.cut(piece).map_err(not_a_frame)?;
        if from_agent.is_between_frames() {
            let unasked = SessionError::Unasked { size: taken };
            self.unanswered = self.unanswered.checked_sub(1).ok_or(unasked)?;
        }
        to_client.push(piece.get(..taken).unwrap_or_default());
        self.close_if_client_is_done();
        Ok(taken)
    }
}

impl Session for RelaySession {
    fn agent_unreachable(&mut self, reason: impl Into<String>) {
        if self.core.state == State::ConnectingToAgent {
            self.core.note(SessionError::Unreachable(reason.into()));
            self.core.step(Event::AgentUnreachable);
        }
    }

    fn takes_client_bytes(&self) -> bool {
        let expected = match self.core.state {
            State::Relaying => !self.is_astray,
            State::Refusing => self.owed == 0,
            State::Disconnected
            | State::ConnectingToAgent
            | State::Error
            | State::Closing
            | State::Fatal => false,
        };
        expected && self.core.has_room_for_client_bytes()
    }

    fn client_eof(&mut self) {
        self.core.client_eof = true;
        self.close_if_client_is_done();
    }

    fn takes_agent_bytes(&self) -> bool {
        self.core.state == State::Relaying && self.core.to_client.has_room()
    }

    /// With an error the link is lost, and the client goes on without an agent. Otherwise it may find one
    /// when it comes again.
    fn agent_closed(&mut self, had_error: bool) {
        if self.core.state != State::Relaying {
            self.core.close();
        } else if !self.core.from_agent.is_between_frames() {
            self.core.fail_silently(SessionError::CutShort(Peer::Agent));
        } else if had_error && !self.is_astray {
            self.core.note(SessionError::Broken(Peer::Agent));
            self.core.to_agent.clear();
            self.core.step(Event::AgentLost);
            self.refuse_unanswered();
            self.close_if_client_is_done();
        } else {
            self.refuse_unanswered();
            self.core.close();
        }
    }

    fn agent_took(&mut self, count: usize, _: Instant) {
        self.core.to_agent.took(count);
    }

    fn client_took(&mut self, count: usize) {
        self.core.to_client.took(count);
        self.answer_owed();
        self.close_if_client_is_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Frame, MessageType, Request};

    const EMPTY_LIST: [u8; 9] = [0, 0, 0, 5, 12, 0, 0, 0, 0];

    fn relaying() -> RelaySession {
        let mut relay = RelaySession::connected();
        relay.agent_connected();
        relay
    }

    fn refusing() -> RelaySession {
        let mut relay = RelaySession::connected();
        relay.agent_unreachable("there is none");
        relay
    }

    /// Has the agent take what the client sends.
    fn ask(relay: &mut RelaySession, bytes: &[u8]) {
        assert_eq!(relay.client_bytes(bytes), bytes.len());
        assert_eq!(relay.to_agent(), bytes);
        relay.agent_took(bytes.len(), Instant::now());
    }

    #[test]
    fn unanswered_requests_get_their_failures_and_later_ones_too() {
        let mut relay = relaying();
        ask(&mut relay, &Request::LIST.repeat(3));
        relay.agent_bytes(&EMPTY_LIST);
        relay.agent_closed(true);
        let answers = [&EMPTY_LIST[..], &FAILURE.repeat(2)].concat();
        assert_eq!(relay.to_client(), answers);
        relay.client_took(answers.len());
        relay.client_bytes(&Request::LIST);
        assert_eq!(relay.to_client(), FAILURE);
        assert!(relay.to_agent().is_empty());
        relay.client_eof();
        assert!(relay.is_over());
    }

    #[test]
    fn an_agent_that_hangs_up_leaves_failures_and_the_end() {
        let mut relay = relaying();
        ask(&mut relay, &Request::LIST.repeat(2));
        relay.agent_closed(false);
        assert_eq!((relay.to_client(), relay.is_over()), (&FAILURE.repeat(2)[..], true));
    }

    #[test]
    fn the_rest_of_a_request_is_no_new_one() {
        let sign = Frame::new(MessageType::SIGN_REQUEST, &[1; 100]).unwrap().encode();
        for at in 1..sign.len() {
            let mut relay = relaying();
            ask(&mut relay, &sign[..at]);
            relay.agent_closed(true);
            assert!(relay.to_client().is_empty());
            assert_eq!(relay.client_bytes(&sign[at..]), sign.len() - at);
            assert_eq!(relay.to_client(), FAILURE, "{at}");
        }
    }

    #[test]
    fn after_a_part_of_an_answer_there_is_only_the_end() {
        for at in 1..EMPTY_LIST.len() {
            let mut relay = relaying();
            ask(&mut relay, &Request::LIST);
            relay.agent_bytes(&EMPTY_LIST[..at]);
            relay.agent_closed(true);
            assert_eq!((relay.to_client(), relay.is_over()), (&EMPTY_LIST[..at], true));
        }
    }

    #[test]
    fn what_no_agent_sends_ends_the_session() {
        for (asked, sent) in [(&Request::LIST[..], &b"\xff\xff\xff\xff"[..]), (b"", &EMPTY_LIST)] {
            let mut relay = relaying();
            ask(&mut relay, asked);
            relay.agent_bytes(sent);
            assert!(relay.is_over() && relay.to_client().len() < sent.len());
        }
    }

    #[test]
    fn the_host_answers_what_is_no_frame_and_nothing_is_read_after_it() {
        let mut relay = relaying();
        ask(&mut relay, &[&Request::LIST[..], b"\0\0\0\0"].concat());
        assert!(!relay.takes_client_bytes());
        relay.agent_bytes(&[&EMPTY_LIST[..], &FAILURE].concat());
        relay.agent_closed(false);
        assert_eq!(relay.to_client(), [&EMPTY_LIST[..], &FAILURE].concat());
        assert!(relay.is_over());
    }

    #[test]
    fn a_half_close_gets_every_answer_and_a_failure_for_what_is_cut_short() {
        let mut relay = relaying();
        ask(&mut relay, &Request::LIST);
        relay.client_eof();
        assert!(!relay.is_over() && !relay.takes_client_bytes());
        relay.agent_bytes(&EMPTY_LIST);
        assert_eq!((relay.to_client(), relay.is_over()), (&EMPTY_LIST[..], true));

        let mut relay = relaying();
        ask(&mut relay, &[&Request::LIST[..], b"\0\0\0\x09\x0bcut"].concat());
        relay.client_eof();
        assert!(!relay.is_over());
        relay.agent_bytes(&EMPTY_LIST);
        assert_eq!(relay.to_client(), [&EMPTY_LIST[..], &FAILURE].concat());
        assert!(relay.is_over());
    }

    #[test]
    fn a_million_unanswered_requests_need_little_memory() {
        let mut relay = relaying();
        let thousand = Request::LIST.repeat(1000);
        for _ in 0..1000 {
            ask(&mut relay, &thousand);
        }
        relay.agent_closed(true);
        let mut answers = 0;
        while !relay.to_client().is_empty() {
            assert!(relay.to_client().len() < 36_000);
            answers += relay.to_client().len() / FAILURE.len();
            relay.client_took(relay.to_client().len());
        }
        assert_eq!(answers, 1_000_000);
        assert!(relay.takes_client_bytes());
    }

    #[test]
    fn without_an_agent_each_request_gets_one_failure_however_it_arrives() {
        let sign = Frame::new(MessageType::SIGN_REQUEST, &vec![7; 70_000]).unwrap().encode();
        let bind = Frame::new(MessageType::EXTENSION, b"\0\0\0\x01x").unwrap().encode();
        let stream = [&Request::LIST[..], &sign, &bind, &Request::LIST].concat();
        for piece in [1, 3, 4, 5, 6, 1000, stream.len()] {
            let mut relay = refusing();
            for part in stream.chunks(piece) {
                assert_eq!(relay.client_bytes(part), part.len());
            }
            relay.client_eof();
            assert!(relay.is_over());
            assert_eq!(relay.to_client(), FAILURE.repeat(4), "{piece}");
        }
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from() {
        let flood = Request::LIST.repeat(10_000);
        for mut relay in [refusing(), relaying()] {
            let taken = relay.client_bytes(&flood);
            assert!(taken < 36_000 && !relay.takes_client_bytes(), "{taken}");
            assert_eq!(relay.client_bytes(&flood), 0);
            relay.client_took(relay.to_client().len());
            relay.agent_took(relay.to_agent().len(), Instant::now());
            assert!(relay.client_bytes(&flood) > 0);
        }
    }

    #[test]
    fn without_an_agent_what_is_no_frame_gets_a_failure_and_the_end() {
        for bytes in [&b"\0\0\0\0rest"[..], b"\0\x04\0\x01rest", b"GET / HTTP/1.1"] {
            let mut relay = refusing();
            assert_eq!(relay.client_bytes(bytes), bytes.len());
            assert_eq!((relay.to_client(), relay.is_over()), (&FAILURE[..], true));
        }
        let mut relay = refusing();
        relay.client_bytes(b"\0\0\0\x09\x0bcut");
        assert!(relay.to_client().is_empty());
        relay.client_eof();
        assert_eq!((relay.to_client(), relay.is_over()), (&FAILURE[..], true));
    }
}
