//! Byte queues of chunks from one pool, so that a steady transfer allocates nothing.

use std::collections::VecDeque;
use std::fmt;

/// The size of a chunk: little is wasted on a stream that holds one byte, and a window is 32 chunks.
const CHUNK: usize = 8 * 1024;

/// How many chunks are kept for later: two whole windows of a stream, half a MiB.
const KEPT_CHUNKS: usize = 64;

type Chunk = Box<[u8; CHUNK]>;

/// First in, first out; holds no chunk while it is empty.
#[derive(Default)]
pub(super) struct ByteQueue {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are consumed.
    head: usize,
    len: usize,
}

impl ByteQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, pool: &mut ChunkPool, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = self.head + self.len;
            if end == self.chunks.len() * CHUNK {
                self.chunks.push_back(pool.take());
            }
            let free = self.chunks.back_mut().and_then(|chunk| chunk.get_mut(end % CHUNK..));
            let free = free.unwrap_or_default();
            let (now, later) = bytes.split_at(bytes.len().min(free.len()));
            debug_assert!(!now.is_empty());
            if let Some(place) = free.get_mut(..now.len()) {
                place.copy_from_slice(now);
            }
            self.len += now.len();
            bytes = later;
        }
    }

    /// The first contiguous bytes; empty only when the queue is.
    pub(super) fn front(&self) -> &[u8] {
        self.slices().next().unwrap_or_default()
    }

    /// All bytes, in order.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let end = self.head + self.len;
        self.chunks.iter().enumerate().filter_map(move |(number, chunk)| {
            let offset = number * CHUNK;
            let from = self.head.saturating_sub(offset);
            let to = end.saturating_sub(offset).min(CHUNK);
            chunk.get(from..to).filter(|slice| !slice.is_empty())
        })
    }

    /// Drops the first `count` bytes, or all there are.
    pub(super) fn consume(&mut self, pool: &mut ChunkPool, count: usize) {
        let count = count.min(self.len);
        self.len -= count;
        self.head += count;
        while self.head >= CHUNK {
            self.head -= CHUNK;
            self.release_front(pool);
        }
        if self.len == 0 {
            self.head = 0;
            self.release_front(pool);
        }
        debug_assert_eq!(self.chunks.len(), (self.head + self.len).div_ceil(CHUNK));
    }

    /// Moves the first `count` bytes to the end of `out`.
    pub(super) fn move_to(&mut self, pool: &mut ChunkPool, count: usize, out: &mut Vec<u8>) {
        let mut left = count.min(self.len);
        for slice in self.slices() {
            let now = slice.get(..left).unwrap_or(slice);
            out.extend_from_slice(now);
            left -= now.len();
            if left == 0 {
                break;
            }
        }
        self.consume(pool, count);
    }

    pub(super) fn clear(&mut self, pool: &mut ChunkPool) {
        self.consume(pool, self.len);
    }

    fn release_front(&mut self, pool: &mut ChunkPool) {
        if let Some(chunk) = self.chunks.pop_front() {
            pool.give(chunk);
        }
    }
}

/// The chunks of a link that no queue uses at the moment.
#[derive(Default)]
pub(super) struct ChunkPool {
    free: Vec<Chunk>,
}

impl ChunkPool {
    fn take(&mut self) -> Chunk {
        self.free.pop().unwrap_or_else(|| Box::new([0; CHUNK]))
    }

    fn give(&mut self, chunk: Chunk) {
        if self.free.len() < KEPT_CHUNKS {
            self.free.push(chunk);
        }
    }
}

// Both show only sizes: the bytes may be secret, and chunks keep old ones.
impl fmt::Debug for ByteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteQueue({} bytes)", self.len)
    }
}

impl fmt::Debug for ChunkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkPool({} chunks)", self.free.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(queue: &ByteQueue) -> Vec<u8> {
        queue.slices().flatten().copied().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_queue_is_a_queue(steps in proptest::collection::vec((0usize..20_000, 0usize..20_000), 1..24)) {
            let mut pool = ChunkPool::default();
            let mut queue = ByteQueue::default();
            let mut model = VecDeque::new();
            let mut next = 0u8;
            for (push, consume) in steps {
                let bytes: Vec<u8> = (0..push).map(|_| { next = next.wrapping_add(7); next }).collect();
                queue.push(&mut pool, &bytes);
                model.extend(bytes);
                queue.consume(&mut pool, consume);
                model.drain(..consume.min(model.len()));
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.front().is_empty(), model.is_empty());
                prop_assert!(content(&queue).iter().eq(model.iter()));
            }
            let mut out = Vec::new();
            queue.move_to(&mut pool, usize::MAX, &mut out);
            prop_assert!(out.iter().eq(model.iter()));
            prop_assert!(queue.chunks.is_empty());
            prop_assert!(pool.free.len() <= KEPT_CHUNKS);
        }
    }
}
