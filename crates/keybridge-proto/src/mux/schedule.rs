//! Which stream sends next: those that can send take turns, the others wait.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// The queues of a link. A stream is in each of them at most once, and in none after it was removed.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Streams with OPEN, WINDOW or CLOSE to send, in order.
    control: Ring,
    /// Streams with bytes or an end to send, and credit for it.
    ready: Ring,
    /// Streams with bytes to send that wait only for the link's window.
    blocked: Ring,
    /// Streams whose writer waits for room.
    waiting: Ring,
}

impl Schedule {
    pub(super) fn control(&mut self, id: u32) {
        self.control.enter(id);
    }

    pub(super) fn next_control(&mut self) -> Option<u32> {
        self.control.pop()
    }

    pub(super) fn ready(&mut self, id: u32) {
        self.blocked.leave(id);
        self.ready.enter(id);
    }

    /// The stream whose turn it is; it keeps its place until [`Self::took_turn`] or [`Self::block`].
    pub(super) fn front(&mut self) -> Option<u32> {
        self.ready.front()
    }

    /// The front has had its turn, and goes to the back if it has more.
    pub(super) fn took_turn(&mut self, more: bool) {
        if let Some(id) = self.ready.pop().filter(|_| more) {
            self.ready.enter(id);
        }
    }

    /// The stream can't send. It comes back with its own credit, or with the link's if that is what it
    /// waits for.
    pub(super) fn block(&mut self, id: u32, waits_for_link: bool) {
        self.ready.leave(id);
        if waits_for_link {
            self.blocked.enter(id);
        }
    }

    /// The link's window has room again: all that waited for it get their turn, in their order.
    pub(super) fn unblock(&mut self) {
        while let Some(id) = self.blocked.pop() {
            self.ready.enter(id);
        }
    }

    pub(super) fn wait(&mut self, id: u32) {
        self.waiting.enter(id);
    }

    pub(super) fn stop_waiting(&mut self, id: u32) -> bool {
        self.waiting.leave(id)
    }

    /// How many writers wait, for one round of `next_waiting`.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.places.len()
    }

    pub(super) fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop()
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.control.leave(id);
        self.forget_bytes(id);
    }

    /// The stream sends no more bytes; its control frames stay.
    pub(super) fn forget_bytes(&mut self, id: u32) {
        for ring in [&mut self.ready, &mut self.blocked, &mut self.waiting] {
            ring.leave(id);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.ready.is_empty()
    }
}

/// Streams in order, each at most once. Entering and leaving take constant time, so that a peer with many
/// streams can't cause quadratic work.
#[derive(Debug, Default)]
struct Ring {
    /// Streams with the number of their place; those that have left are skipped.
    order: VecDeque<(u32, u64)>,
    /// The place of each stream that is in the ring.
    places: HashMap<u32, u64>,
    next_place: u64,
}

/// Places of streams that have left are removed when there are more of them than this and than members.
const SWEEP_ABOVE: usize = 64;

impl Ring {
    fn enter(&mut self, id: u32) {
        let Entry::Vacant(place) = self.places.entry(id) else { return };
        place.insert(self.next_place);
        self.order.push_back((id, self.next_place));
        self.next_place += 1;
        if self.order.len() > 2 * self.places.len() + SWEEP_ABOVE {
            self.order.retain(|(id, place)| self.places.get(id) == Some(place));
        }
    }

    fn leave(&mut self, id: u32) -> bool {
        self.places.remove(&id).is_some()
    }

    fn front(&mut self) -> Option<u32> {
        while let Some((id, place)) = self.order.front() {
            if self.places.get(id) == Some(place) {
                return Some(*id);
            }
            self.order.pop_front();
        }
        None
    }

    fn pop(&mut self) -> Option<u32> {
        let id = self.front()?;
        self.order.pop_front();
        self.places.remove(&id);
        Some(id)
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_place_whichever_way_it_comes_back() {
        let mut schedule = Schedule::default();
        for id in [1, 2, 3] {
            schedule.ready(id);
            schedule.ready(id);
            schedule.block(id, id != 3);
        }
        assert!(schedule.is_idle());
        schedule.ready(2);
        schedule.unblock();
        assert_eq!(schedule.front(), Some(2));
        schedule.took_turn(true);
        assert_eq!(schedule.front(), Some(1));
        schedule.took_turn(false);
        assert_eq!(schedule.front(), Some(2));
        schedule.forget(2);
        assert_eq!(schedule.front(), None);
        assert!(schedule.is_idle());
    }

    #[test]
    fn a_ring_does_not_grow_with_those_that_come_and_go() {
        let mut ring = Ring::default();
        ring.enter(7);
        for _ in 0..10_000 {
            ring.enter(8);
            assert!(ring.leave(8));
        }
        assert!(ring.order.len() <= SWEEP_ABOVE + 3, "{}", ring.order.len());
        assert_eq!((ring.pop(), ring.pop()), (Some(7), None));
    }
}
