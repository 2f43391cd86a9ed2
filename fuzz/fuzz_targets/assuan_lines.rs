//! The decoders of lines: any bytes, in any pieces.
#![no_main]

use keybridge_proto::assuan::{
    LineBuffer, MAX_LINE, RequestLine, ResponseLine, Summary, escape_into, unescape,
};
use keybridge_proto::printable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let mut lines = LineBuffer::default();
    'stream: for mut piece in bytes.chunks(usize::from(piece) + 1) {
        while !piece.is_empty() {
            let Ok(cut) = lines.cut(piece) else { break 'stream };
            assert!(cut.taken > 0 && cut.taken <= piece.len());
            if let Some(line) = cut.line {
                assert!(line.ends_with(b"\n") && line.len() <= MAX_LINE);
                let _ = ResponseLine::parse(line);
                let _ = RequestLine::parse(line);
                assert!(Summary::of(line).to_string().is_ascii());
            }
            piece = &piece[cut.taken..];
        }
    }
    let mut escaped = Vec::new();
    escape_into(&mut escaped, bytes);
    assert_eq!(unescape(&escaped).as_deref(), Ok(bytes));
    let _ = unescape(bytes);
    assert!(!printable(bytes).to_string().contains(|character: char| character.is_control()));
});
