//! Whose turn it is: streams with something to send go round, and those that can't send wait outside.

use std::collections::VecDeque;

/// The rings of a link. A stream is in each of them at most once, and never after it is forgotten.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Streams with OPEN, WINDOW or CLOSE to send, in the order in which that came up.
    control: VecDeque<u32>,
    /// Streams with bytes or an end to send, and credit for it.
    ready: VecDeque<u32>,
    /// Streams with bytes to send that wait for the link's window alone.
    blocked: VecDeque<u32>,
    /// Streams whose writer was told that it can't write.
    waiting: VecDeque<u32>,
}

impl Schedule {
    pub(super) fn control(&mut self, id: u32) {
        enter(&mut self.control, id);
    }

    pub(super) fn next_control(&mut self) -> Option<u32> {
        self.control.pop_front()
    }

    pub(super) fn ready(&mut self, id: u32) {
        self.blocked.retain(|blocked| *blocked != id);
        enter(&mut self.ready, id);
    }

    /// The stream whose turn it is; it keeps its place until [`Self::took_turn`] or [`Self::block`].
    pub(super) fn front(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// The front has had its turn, and goes to the back if it has more.
    pub(super) fn took_turn(&mut self, more: bool) {
        if let Some(id) = self.ready.pop_front().filter(|_| more) {
            self.ready.push_back(id);
        }
    }

    /// The stream can't send. It comes back with its own credit, or with the link's if that is what it
    /// waits for.
    pub(super) fn block(&mut self, id: u32, waits_for_link: bool) {
        self.ready.retain(|ready| *ready != id);
        if waits_for_link {
            enter(&mut self.blocked, id);
        }
    }

    /// The link's window has room again: all that waited for it get their turn, in their order.
    pub(super) fn unblock(&mut self) {
        self.ready.append(&mut self.blocked);
    }

    pub(super) fn wait(&mut self, id: u32) {
        enter(&mut self.waiting, id);
    }

    pub(super) fn stop_waiting(&mut self, id: u32) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != id);
        self.waiting.len() < before
    }

    /// Those who wait, for a walk of one round by `waiting_len` and `next_waiting`.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    pub(super) fn forget(&mut self, id: u32) {
        for ring in [&mut self.control, &mut self.ready, &mut self.blocked, &mut self.waiting] {
            ring.retain(|other| *other != id);
        }
    }

    /// The stream sends no more bytes; its control frames stay.
    pub(super) fn forget_bytes(&mut self, id: u32) {
        for ring in [&mut self.ready, &mut self.blocked, &mut self.waiting] {
            ring.retain(|other| *other != id);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.control.is_empty() && self.ready.is_empty()
    }
}

// A walk of at most a few hundred small numbers, which is quicker than any set.
fn enter(ring: &mut VecDeque<u32>, id: u32) {
    if !ring.contains(&id) {
        ring.push_back(id);
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
        assert_eq!(schedule.ready, [2, 1]);
        schedule.took_turn(true);
        assert_eq!(schedule.ready, [1, 2]);
        schedule.took_turn(false);
        schedule.forget(2);
        assert!(schedule.is_idle());
    }
}
