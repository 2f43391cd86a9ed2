//! The memory that the responses of all sessions may hold together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_RESPONSE;

/// A response up to this size doesn't count: most are smaller, and never wait.
const SMALL: usize = 16 * 1024;

/// The budget of all larger responses: two of the largest.
const BUDGET: usize = 2 * MAX_RESPONSE;

/// The size of one permit.
const UNIT: usize = 1024;

/// The size of one piece of a response.
const PIECE: usize = 32 * 1024;

/// Room for the responses of all sessions. A response that needs room reserves it for the largest size,
/// so that it can always be completed, and gives back what it didn't need.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Semaphore>);

/// The agent's response to a call.
#[derive(Debug)]
pub(super) struct Response {
    pieces: Vec<Vec<u8>>,
    size: usize,
    room: Option<OwnedSemaphorePermit>,
    is_too_large: bool,
    budget: Budget,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET / UNIT)))
    }

    pub(super) fn response(&self) -> Response {
        Response {
            pieces: Vec::new(),
            size: 0,
            room: None,
            is_too_large: false,
            budget: self.clone(),
        }
    }

    /// Waits for room for the largest response, in the order of asking.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_many_owned(units(MAX_RESPONSE)).await.ok()
    }
}

impl Response {
    /// Adds the agent's bytes. False if there is no room for them yet.
    pub(super) fn add(&mut self, bytes: &[u8]) -> bool {
        if self.is_too_large {
            return true;
        }
        let size = self.size + bytes.len();
        if size > MAX_RESPONSE {
            self.is_too_large = true;
            (self.pieces, self.room) = (Vec::new(), None);
            return true;
        }
        if size > SMALL && self.room.is_none() {
            let budget = Arc::clone(&self.budget.0);
            self.room = budget.try_acquire_many_owned(units(MAX_RESPONSE)).ok();
            if self.room.is_none() {
                return false;
            }
        }
        self.size = size;
        match self.pieces.last_mut() {
            Some(piece) if piece.len() + bytes.len() <= PIECE => piece.extend_from_slice(bytes),
            Some(_) | None => self.pieces.push(bytes.to_vec()),
        }
        true
    }

    pub(super) fn give_room(&mut self, room: OwnedSemaphorePermit) {
        self.room = Some(room);
    }

    pub(super) const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Marks it as complete, and gives back the room that it didn't need.
    pub(super) fn complete(mut self) -> Self {
        if let Some(room) = &mut self.room {
            let unused = room.num_permits().saturating_sub(self.size.div_ceil(UNIT));
            drop(room.split(unused));
        }
        self
    }

    /// The bytes, piece by piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(Vec::as_slice)
    }
}

fn units(size: usize) -> u32 {
    u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_responses_need_no_room_and_large_ones_share_it() {
        let budget = Budget::new();
        let more = vec![b'x'; SMALL + 1];
        let mut large: Vec<Response> = (0..3).map(|_| budget.response()).collect();
        let added: Vec<bool> = large.iter_mut().map(|one| one.add(&more)).collect();
        assert_eq!(added, [true, true, false]);
        let mut small = budget.response();
        assert!(small.add(&[b'x'; SMALL]) && !small.add(b"x"));
        // One that is complete gives back what it didn't need, and the rest when it is gone.
        let first = large.remove(0).complete();
        assert_eq!(first.pieces().map(<[u8]>::len).sum::<usize>(), SMALL + 1);
        assert!(!large[1].add(&more));
        let second = large.remove(0).complete();
        assert!(large[0].add(&more));
        assert!(!small.add(b"x"));
        drop((first, second));
        assert!(small.add(b"x"));
    }

    #[test]
    fn one_that_is_too_large_is_dropped_and_gives_its_room_back() {
        let budget = Budget::new();
        let mut response = budget.response();
        let part = vec![b'x'; 1 << 20];
        for _ in 0..=MAX_RESPONSE >> 20 {
            assert!(response.add(&part));
        }
        assert!(response.is_too_large());
        assert_eq!((response.pieces().count(), budget.0.available_permits()), (0, BUDGET / UNIT));
    }
}
