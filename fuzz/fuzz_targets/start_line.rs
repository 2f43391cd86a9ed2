//! The scanner for the start line: any banner, in any pieces, with and without the line in it.
#![no_main]

use keybridge_proto::mux::{Cookie, StartScanner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, [u8; 16], &[u8], &[u8], bool)| {
    let (piece, cookie, before, after, present) = input;
    let cookie = Cookie::new(cookie);
    let line = cookie.start_line();
    let mut stream = before.to_vec();
    if present {
        stream.extend_from_slice(&line);
    }
    stream.extend_from_slice(after);
    let mut scanner = StartScanner::new(&cookie);
    let mut seen = 0;
    for piece in stream.chunks(usize::from(piece) + 1) {
        match scanner.feed(piece) {
            Ok(Some(taken)) => {
                assert!(stream[..seen + taken].ends_with(&line));
                return;
            }
            Ok(None) => seen += piece.len(),
            Err(_) => return,
        }
    }
    assert!(!present, "the line was missed");
});
