//! Flow control: how many bytes may be in flight, for one stream and for the link.
//!
//! Bytes are in flight from when they are sent until the receiver gives credit for them, which it does
//! when they are consumed. Both ends count alike: a receiver's count is never above its sender's, because
//! bytes reach the receiver later and credit reaches the sender later.
//!
//! The rule for `n` more bytes on a stream, in [`Flow::room`]:
//!
//! ```text
//! stream + n <= WINDOW  and  (link + n <= LINK_WINDOW  or  stream + n <= FLOOR)
//! ```
//!
//! It follows that the link's count never exceeds `LINK_WINDOW` and one `FLOOR` for each stream:
//! since the last bytes that fitted in `LINK_WINDOW`, only streams that stay within `FLOOR` have
//! sent.

use super::LinkError;

/// What one stream may have in flight in one direction: any answer of gpg-agent or ssh-agent fits,
/// and at a round trip of 20 ms it still carries 12 MiB a second.
pub const WINDOW: usize = 256 * 1024;

/// What all streams of a link together may have in flight in one direction: 16 streams at full speed, in
/// little memory on the host.
pub const LINK_WINDOW: usize = 4 * 1024 * 1024;

/// What each stream may have in flight even when the link's window is used up, so that stalled streams
/// never stop another: several Assuan lines, of at most 1002 bytes each.
pub const FLOOR: usize = 4 * 1024;

/// Credit waits until it is worth a frame: a quarter of the window keeps three quarters in use.
const CREDIT_WORTH_A_FRAME: usize = WINDOW / 4;

/// How much credit may wait while a stream's queue is empty: small requests then need no WINDOW, and
/// half of the stream's floor stays free, which is more than the longest Assuan line.
pub(super) const CREDIT_OWED: usize = FLOOR / 2;

/// The bytes in flight on one stream in one direction.
#[derive(Debug, Default)]
pub(super) struct Flow {
    in_flight: usize,
}

impl Flow {
    /// How many bytes a sender may send now.
    pub(super) fn room(&self, link: &LinkFlow) -> usize {
        let by_link = link.room();
        let by_floor = FLOOR.saturating_sub(self.in_flight);
        (WINDOW - self.in_flight).min(by_link.max(by_floor))
    }

    /// Whether a sender without room waits for the link's window only.
    pub(super) fn waits_for_link(&self) -> bool {
        self.in_flight < WINDOW
    }

    /// Counts bytes that are sent; the caller has checked [`Self::room`].
    pub(super) fn send(&mut self, link: &mut LinkFlow, count: usize) {
        debug_assert!(count <= self.room(link));
        self.add(link, count);
    }

    /// Counts bytes that a peer announces, before any of them is stored.
    pub(super) fn accept(
        &mut self,
        link: &mut LinkFlow,
        id: u32,
        came: usize,
    ) -> Result<(), LinkError> {
        let room = WINDOW - self.in_flight;
        if came > room {
            return Err(LinkError::StreamCreditExceeded { id, room, came });
        }
        let room = link.bound - link.in_flight;
        if came > room {
            return Err(LinkError::LinkCreditExceeded { id, room, came });
        }
        self.add(link, came);
        Ok(())
    }

    /// Takes bytes off the count: a sender when credit comes, a receiver when it sends credit.
    pub(super) fn give_back(
        &mut self,
        link: &mut LinkFlow,
        id: u32,
        came: usize,
    ) -> Result<(), LinkError> {
        let in_flight = self.in_flight;
        if came > in_flight {
            return Err(LinkError::CreditOverflow { id, in_flight, came });
        }
        self.in_flight -= came;
        link.in_flight -= came;
        Ok(())
    }

    /// Takes everything off the count: the stream is closed.
    pub(super) fn forget(&mut self, link: &mut LinkFlow) {
        link.in_flight -= self.in_flight;
        self.in_flight = 0;
    }

    fn add(&mut self, link: &mut LinkFlow, count: usize) {
        self.in_flight += count;
        link.in_flight += count;
        debug_assert!(self.in_flight <= WINDOW);
        debug_assert!(self.in_flight <= link.in_flight);
        debug_assert!(link.in_flight <= link.bound);
    }
}

/// The bytes in flight on all streams of a link in one direction.
#[derive(Debug)]
pub(super) struct LinkFlow {
    in_flight: usize,
    /// What can be in flight at most, every stream's floor included.
    bound: usize,
}

impl LinkFlow {
    /// The flow of a link with at most this many streams in this direction.
    pub(super) fn new(streams: usize) -> Self {
        Self { in_flight: 0, bound: LINK_WINDOW.saturating_add(streams.saturating_mul(FLOOR)) }
    }

    /// What is left of the window that the streams share.
    pub(super) fn room(&self) -> usize {
        LINK_WINDOW.saturating_sub(self.in_flight)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Credit of one stream that wasn't sent yet.
#[derive(Debug, Default)]
pub(super) struct PendingCredit {
    sum: usize,
}

impl PendingCredit {
    /// Adds consumed bytes. Returns whether the credit is to be sent now.
    pub(super) fn add(&mut self, consumed: usize, queue_is_empty: bool) -> bool {
        self.sum += consumed;
        debug_assert!(self.sum <= WINDOW);
        self.sum >= CREDIT_WORTH_A_FRAME || (queue_is_empty && self.sum >= CREDIT_OWED)
    }

    pub(super) fn take(&mut self) -> usize {
        std::mem::take(&mut self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_its_window() {
        let mut link = LinkFlow::new(2);
        let mut stream = Flow::default();
        assert_eq!(stream.room(&link), WINDOW);
        stream.send(&mut link, WINDOW);
        assert_eq!(stream.room(&link), 0);
        assert_eq!(stream.give_back(&mut link, 1, 10), Ok(()));
        assert_eq!(stream.room(&link), 10);
        assert_eq!(
            stream.give_back(&mut link, 1, WINDOW),
            Err(LinkError::CreditOverflow { id: 1, in_flight: WINDOW - 10, came: WINDOW })
        );
    }

    #[test]
    fn a_used_up_link_leaves_each_stream_its_floor() {
        let mut link = LinkFlow::new(18);
        let mut full: Vec<Flow> = (0..16).map(|_| Flow::default()).collect();
        for stream in &mut full {
            stream.send(&mut link, WINDOW);
        }
        let mut late = Flow::default();
        assert_eq!(late.room(&link), FLOOR);
        late.send(&mut link, FLOOR - 1);
        assert_eq!(late.room(&link), 1);
        late.send(&mut link, 1);
        assert_eq!(late.room(&link), 0);
        full.pop().map(|mut stream| stream.forget(&mut link)).into_iter().for_each(drop);
        assert_eq!(late.room(&link), WINDOW - FLOOR);
        assert_eq!(link.in_flight(), LINK_WINDOW - WINDOW + FLOOR);
    }

    #[test]
    fn credit_waits_for_a_quarter_of_the_window_or_for_half_a_floor_and_an_empty_queue() {
        let mut credit = PendingCredit::default();
        assert!(!credit.add(WINDOW / 4 - 1, false));
        assert!(credit.add(1, false));
        assert_eq!(credit.take(), WINDOW / 4);
        assert!(!credit.add(CREDIT_OWED - 1, true));
        assert!(credit.add(1, true));
        assert_eq!(credit.take(), CREDIT_OWED);
    }
}
