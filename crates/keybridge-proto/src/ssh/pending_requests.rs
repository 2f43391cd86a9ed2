//! Counts the requests of a client that are unanswered, for when the link is lost.

use super::{FrameCutter, RefusingAgent};

/// Counts the unanswered requests of one client, in the target. It stores no bytes: the caller
/// forwards them and shows them here.
///
/// When the link is lost, [`refuse`](Self::refuse) returns a [`RefusingAgent`] that answers each
/// unanswered request, and all later ones, with a failure. If the client already has a part of an
/// answer, the connection can only be closed.
///
/// ```
/// # use keybridge_proto::ssh::{PendingRequests, Request};
/// let mut pending = PendingRequests::default();
/// pending.client_sent(&Request::LIST);
/// let refuser = pending.refuse().expect("no answer has begun");
/// assert_eq!(refuser.to_client(), [0, 0, 0, 1, 5]);
/// ```
#[derive(Debug, Default)]
pub struct PendingRequests {
    requests: FrameCutter,
    answers: FrameCutter,
    /// How many complete requests have no complete answer.
    unanswered: u64,
    frames: Frames,
}

/// Whether both sides have sent valid frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Frames {
    #[default]
    Valid,
    /// One side sent an invalid frame, or an answer without a request.
    Invalid,
}

impl PendingRequests {
    /// These bytes of the client were forwarded.
    pub fn client_sent(&mut self, bytes: &[u8]) {
        match frames_that_end(&mut self.requests, bytes) {
            Some(count) => self.unanswered = self.unanswered.saturating_add(count),
            None => self.frames = Frames::Invalid,
        }
    }

    /// These bytes of the agent were, or will be, sent to the client.
    pub fn agent_sent(&mut self, bytes: &[u8]) {
        let left = frames_that_end(&mut self.answers, bytes)
            .and_then(|count| self.unanswered.checked_sub(count));
        match left {
            Some(left) => self.unanswered = left,
            None => self.frames = Frames::Invalid,
        }
    }

    /// Whether the client waits for an answer, or is in the middle of a request.
    pub const fn is_busy(&self) -> bool {
        self.unanswered > 0 || !self.requests.is_between_frames()
    }

    /// The link is lost. `None` if the connection can only be closed.
    pub fn refuse(self) -> Option<RefusingAgent> {
        match self.frames {
            Frames::Valid if self.answers.is_between_frames() => {
                Some(RefusingAgent::after(self.requests, self.unanswered))
            }
            Frames::Valid | Frames::Invalid => None,
        }
    }
}

/// How many frames end in these bytes; `None` if they are invalid.
fn frames_that_end(cutter: &mut FrameCutter, mut bytes: &[u8]) -> Option<u64> {
    let mut count = 0;
    while !bytes.is_empty() {
        let cut = cutter.cut(bytes).ok()?;
        bytes = bytes.get(cut.taken..).unwrap_or_default();
        count += u64::from(cutter.is_between_frames());
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Frame, MessageType, Request};

    const FAILURE: [u8; 5] = [0, 0, 0, 1, 5];
    const EMPTY_LIST: [u8; 9] = [0, 0, 0, 5, 12, 0, 0, 0, 0];

    #[test]
    fn unanswered_requests_get_their_failures_and_later_ones_too() {
        let mut pending = PendingRequests::default();
        assert!(!pending.is_busy());
        pending.client_sent(&Request::LIST.repeat(3));
        pending.agent_sent(&EMPTY_LIST);
        assert!(pending.is_busy());
        let mut refuser = pending.refuse().unwrap();
        assert_eq!(refuser.to_client(), FAILURE.repeat(2));
        refuser.client_bytes(&Request::LIST);
        assert_eq!(refuser.to_client(), FAILURE.repeat(3));
    }

    #[test]
    fn the_rest_of_a_request_is_no_new_one() {
        let sign = Frame::new(MessageType::SIGN_REQUEST, &[1; 100]).unwrap().encode();
        for at in 1..sign.len() {
            let mut pending = PendingRequests::default();
            pending.client_sent(&sign[..at]);
            assert!(pending.is_busy());
            let mut refuser = pending.refuse().unwrap();
            assert!(refuser.to_client().is_empty());
            assert_eq!(refuser.client_bytes(&sign[at..]), sign.len() - at);
            assert_eq!(refuser.to_client(), FAILURE, "{at}");
        }
    }

    #[test]
    fn after_a_part_of_an_answer_there_is_only_the_end() {
        for at in 1..EMPTY_LIST.len() {
            let mut pending = PendingRequests::default();
            pending.client_sent(&Request::LIST);
            pending.agent_sent(&EMPTY_LIST[..at]);
            assert!(pending.refuse().is_none(), "{at}");
        }
        let mut pending = PendingRequests::default();
        pending.client_sent(&Request::LIST);
        for byte in EMPTY_LIST {
            pending.agent_sent(&[byte]);
        }
        assert!(!pending.is_busy());
        assert!(pending.refuse().unwrap().to_client().is_empty());
    }

    #[test]
    fn after_bytes_that_are_no_frames_there_is_only_the_end() {
        let lost = |client: &[u8], agent: &[u8]| {
            let mut pending = PendingRequests::default();
            pending.client_sent(client);
            pending.agent_sent(agent);
            pending.refuse().is_none()
        };
        assert!(lost(b"\0\0\0\0", b""));
        assert!(lost(&Request::LIST, b"\xff\xff\xff\xff"));
        assert!(lost(b"", &EMPTY_LIST));
        assert!(!lost(&Request::LIST, &EMPTY_LIST));
    }

    #[test]
    fn a_million_unanswered_requests_need_little_memory() {
        let mut pending = PendingRequests::default();
        let thousand = Request::LIST.repeat(1000);
        for _ in 0..1000 {
            pending.client_sent(&thousand);
        }
        let mut refuser = pending.refuse().unwrap();
        let mut answers = 0;
        while !refuser.to_client().is_empty() {
            assert!(refuser.to_client().len() < 36_000);
            answers += refuser.to_client().len() / FAILURE.len();
            refuser.client_took(refuser.to_client().len());
        }
        assert_eq!(answers, 1_000_000);
        assert!(refuser.takes_client_bytes());
    }
}
