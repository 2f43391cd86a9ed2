//! Frames in a named pipe, which several processes use one after the other.
//!
//! ```text
//!  0        2            10
//!  ├ length ┼ request ───┼ a part of the frame ┤
//! ```
//!
//! A pipe keeps what a process has left that died in the middle of a frame. So a frame comes in pieces, each
//! written as a whole, with the number of its request, and a piece of another request drops what was there.

use super::{BadFrame, frame_size};

/// The longest piece: a pipe takes as many bytes as a whole (`PIPE_BUF`).
const MAX_PIECE: usize = 4096;

/// What is before the part.
const HEAD: usize = 10;

/// A frame in pieces, to be written one by one. One without bytes says that there is no frame.
pub fn in_pieces(request: u64, frame: &[u8]) -> Vec<Vec<u8>> {
    let piece = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], &request.to_be_bytes(), part].concat()
    };
    if frame.is_empty() {
        return vec![piece(&[])];
    }
    frame.chunks(MAX_PIECE - HEAD).map(piece).collect()
}

/// Puts frames together.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Bytes that aren't a piece yet.
    unread: Vec<u8>,
    request: u64,
    frame: Vec<u8>,
}

impl Pieces {
    /// Adds what was read from the pipe.
    pub fn add(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next frame that is whole, or an empty one, and its request. After an error nothing that follows
    /// makes sense.
    pub fn next_frame(&mut self) -> Result<Option<(u64, Vec<u8>)>, BadFrame> {
        while let Some((request, part)) = self.next_piece()? {
            if request != self.request {
                self.request = request;
                self.frame.clear();
            }
            if part.is_empty() {
                self.frame.clear();
                return Ok(Some((request, part)));
            }
            self.frame.extend_from_slice(&part);
            match frame_size(&self.frame)? {
                Some(size) if size < self.frame.len() => return Err(BadFrame::Malformed),
                Some(size) if size == self.frame.len() => {
                    return Ok(Some((request, std::mem::take(&mut self.frame))));
                }
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    fn next_piece(&mut self) -> Result<Option<(u64, Vec<u8>)>, BadFrame> {
        let Some(&[a, b, ref request @ ..]) = self.unread.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let size = HEAD + usize::from(u16::from_be_bytes([a, b]));
        if size > MAX_PIECE {
            return Err(BadFrame::Malformed);
        }
        let request = u64::from_be_bytes(*request);
        let Some(part) = self.unread.get(HEAD..size).map(<[u8]>::to_vec) else { return Ok(None) };
        self.unread.drain(..size);
        Ok(Some((request, part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of this size.
    fn frame(size: usize) -> Vec<u8> {
        let length = u32::try_from(size - 4).unwrap().to_be_bytes();
        [&length[..], &vec![b'x'; size - 4]].concat()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, BadFrame> {
        let mut pieces = Pieces::default();
        pieces.add(bytes);
        let mut frames = Vec::new();
        while let Some(one) = pieces.next_frame()? {
            frames.push(one);
        }
        Ok(frames)
    }

    #[test]
    fn frames_come_back_whatever_the_reads_are() {
        for size in [8, 9, 4085, 4086, 4087, 100_000, super::super::MAX_FRAME] {
            let pieces = in_pieces(7, &frame(size));
            assert!(pieces.iter().all(|piece| piece.len() <= MAX_PIECE));
            let bytes = pieces.concat();
            assert_eq!(read(&bytes), Ok(vec![(7, frame(size))]));
            let mut together = Pieces::default();
            let mut found = Vec::new();
            for part in bytes.chunks(1 + size / 7) {
                together.add(part);
                found.extend(together.next_frame().unwrap());
            }
            assert_eq!(found, [(7, frame(size))], "{size}");
        }
    }

    #[test]
    fn a_frame_that_was_left_half_written_is_dropped() {
        let mut bytes = in_pieces(1, &frame(10_000))[..2].concat();
        bytes.extend(in_pieces(2, &frame(5_000)).concat());
        bytes.extend(in_pieces(3, b"").concat());
        assert_eq!(read(&bytes), Ok(vec![(2, frame(5_000)), (3, Vec::new())]));
    }

    #[test]
    fn what_is_no_piece_is_an_error() {
        let long = [&[0x10, 0][..], &[0; 4096]].concat();
        let more = in_pieces(1, &[frame(8), b"x".to_vec()].concat()).concat();
        let too_large = in_pieces(1, &[0xff; 20]).concat();
        for bytes in [long, more, too_large] {
            assert!(read(&bytes).is_err(), "{bytes:?}");
        }
    }
}
