//! A named pipe that several processes write to: frames, parts of them, and any bytes. What comes out doesn't
//! depend on how it is read.
#![no_main]

use arbitrary::Arbitrary;
use keybridge_proto::git::{BadFrame, Pieces, frame_size, in_pieces};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Write<'a> {
    /// A frame, or as many of its pieces as its writer lived for.
    Frame {
        request: u8,
        size: u16,
        pieces: Option<u8>,
    },
    Nothing {
        request: u8,
    },
    Raw(&'a [u8]),
}

fuzz_target!(|input: (u16, Vec<Write<'_>>)| {
    let (part, writes) = input;
    let bytes: Vec<u8> = writes.iter().take(16).flat_map(written).collect();
    let at_once = read(&bytes, bytes.len().max(1));
    assert_eq!(read(&bytes, usize::from(part) + 1), at_once);
    for (_, frame) in at_once.0 {
        assert!(frame.is_empty() || frame_size(&frame) == Ok(Some(frame.len())));
    }
});

fn written(write: &Write<'_>) -> Vec<u8> {
    match write {
        Write::Frame { request, size, pieces } => {
            let length = u32::from(*size).max(4);
            let rest = vec![b'x'; usize::try_from(length).expect("short")];
            let frame = [&length.to_be_bytes()[..], &rest].concat();
            let count = pieces.map_or(usize::MAX, usize::from);
            in_pieces((*request).into(), &frame).into_iter().take(count).flatten().collect()
        }
        Write::Nothing { request } => in_pieces((*request).into(), b"").concat(),
        Write::Raw(bytes) => bytes.to_vec(),
    }
}

/// The frames that come, up to the first error.
fn read(bytes: &[u8], part: usize) -> (Vec<(u64, Vec<u8>)>, Option<BadFrame>) {
    let (mut pieces, mut frames) = (Pieces::default(), Vec::new());
    for part in bytes.chunks(part) {
        pieces.add(part);
        loop {
            match pieces.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}
