//! Answers in place of an agent that can't be reached.

use super::frame::FAILURE;
use super::{FrameCutter, Piece};
use crate::session::outbox::Outbox;

/// Answers each request of one client with a failure, while the agent can't be reached: `ssh-add -l` then
/// says "agent refused operation", and ssh continues with the keys it has.
///
/// The caller moves bytes, as with a session: it reads from the client while
/// [`takes_client_bytes`](Self::takes_client_bytes) says so, hands over what it read with
/// [`client_bytes`](Self::client_bytes), writes what [`to_client`](Self::to_client) holds and says
/// with [`client_took`](Self::client_took) what was written. It closes the connection when the
/// client's input has ended or [`is_over`](Self::is_over) says so, and `to_client` is empty. Requests
/// are not stored, and a client that doesn't read is not read from.
///
/// ```
/// # use keybridge_proto::ssh::{RefusingAgent, Request};
/// let mut refuser = RefusingAgent::default();
/// assert!(refuser.takes_client_bytes());
/// assert_eq!(refuser.client_bytes(&Request::LIST), 5);
/// assert_eq!(refuser.to_client(), [0, 0, 0, 1, 5]);
/// refuser.client_took(5);
/// assert!(refuser.to_client().is_empty() && !refuser.is_over());
/// ```
#[derive(Debug, Default)]
pub struct RefusingAgent {
    requests: FrameCutter,
    to_client: Outbox,
    /// Failures that don't fit into the outbox yet.
    owed: u64,
    over: bool,
}

impl RefusingAgent {
    /// Continues for a client whose requests went to the agent until now.
    pub(super) fn after(requests: FrameCutter, owed: u64) -> Self {
        let mut refuser = Self { requests, owed, ..Self::default() };
        refuser.answer_owed();
        refuser
    }

    /// Whether bytes of the client can be taken now. What comes at other times waits in its socket.
    pub fn takes_client_bytes(&self) -> bool {
        !self.over && self.owed == 0 && self.to_client.has_room()
    }

    /// Takes bytes of the client. Returns how many.
    pub fn client_bytes(&mut self, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| !rest.is_empty())
            && self.takes_client_bytes()
        {
            let Ok(cut) = self.requests.cut(rest) else {
                self.end();
                return input.len();
            };
            taken += cut.taken;
            match cut.piece {
                Some(Piece::Start { .. } | Piece::Part(_)) if self.requests.is_between_frames() => {
                    self.to_client.push(&FAILURE);
                }
                Some(Piece::Start { .. } | Piece::Part(_)) | None => {}
            }
        }
        taken
    }

    /// The client's input has ended. An incomplete request is answered too. To be called when all of
    /// its bytes have been taken.
    pub fn client_eof(&mut self) {
        if self.requests.is_between_frames() {
            self.over = true;
        } else {
            self.end();
        }
    }

    /// Whether nothing more is taken: the client's input has ended, or is invalid.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// What is to be sent to the client.
    pub fn to_client(&self) -> &[u8] {
        self.to_client.pending()
    }

    /// So many bytes were sent to the client.
    pub fn client_took(&mut self, count: usize) {
        self.to_client.took(count);
        self.answer_owed();
    }

    /// Gives the last answer.
    fn end(&mut self) {
        if !self.over {
            self.over = true;
            self.to_client.push(&FAILURE);
        }
    }

    fn answer_owed(&mut self) {
        while self.owed > 0 && self.to_client.has_room() {
            self.owed -= 1;
            self.to_client.push(&FAILURE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Frame, MessageType, Request};

    #[test]
    fn each_request_gets_one_failure_however_it_arrives() {
        let sign = Frame::new(MessageType::SIGN_REQUEST, &vec![7; 70_000]).unwrap().encode();
        let bind = Frame::new(MessageType::EXTENSION, b"\0\0\0\x01x").unwrap().encode();
        let stream = [&Request::LIST[..], &sign, &bind, &Request::LIST].concat();
        for piece in [1, 3, 4, 5, 6, 1000, stream.len()] {
            let mut refuser = RefusingAgent::default();
            for part in stream.chunks(piece) {
                assert_eq!(refuser.client_bytes(part), part.len());
            }
            assert_eq!(refuser.to_client(), FAILURE.repeat(4), "{piece}");
            refuser.client_eof();
            assert!(refuser.is_over());
            assert_eq!(refuser.to_client(), FAILURE.repeat(4), "{piece}");
        }
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from() {
        let mut refuser = RefusingAgent::default();
        let flood = Request::LIST.repeat(10_000);
        let taken = refuser.client_bytes(&flood);
        assert!(taken < 36_000 && !refuser.takes_client_bytes(), "{taken}");
        assert_eq!(refuser.client_bytes(&flood), 0);
        refuser.client_took(refuser.to_client().len());
        assert!(refuser.client_bytes(&flood) > 0);
    }

    #[test]
    fn what_is_no_frame_gets_a_failure_and_the_end() {
        for bytes in [&b"\0\0\0\0rest"[..], b"\0\x04\0\x01rest", b"GET / HTTP/1.1"] {
            let mut refuser = RefusingAgent::default();
            assert_eq!(refuser.client_bytes(bytes), bytes.len());
            assert_eq!(refuser.to_client(), FAILURE);
            assert!(refuser.is_over() && !refuser.takes_client_bytes());
            refuser.client_eof();
            assert_eq!(refuser.to_client(), FAILURE);
        }
        let mut refuser = RefusingAgent::default();
        refuser.client_bytes(b"\0\0\0\x09\x0bcut");
        assert!(refuser.to_client().is_empty());
        refuser.client_eof();
        assert_eq!((refuser.to_client(), refuser.is_over()), (&FAILURE[..], true));
    }
}
