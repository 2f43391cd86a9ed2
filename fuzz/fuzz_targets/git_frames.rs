//! The frames of the git lane, of a hostile client and of a hostile host: any bytes, also behind a right length.
#![no_main]

use keybridge_proto::git::{Answer, MAX_FRAME, MAX_KEY, Request, frame_size};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &[u8], &[u8])| {
    let (has_lengths, header, rest) = input;
    let mut frame = [header, rest].concat();
    if has_lengths {
        let length = |of: usize| u32::try_from(of).expect("a short input").to_be_bytes();
        frame = [&length(frame.len() + 4)[..], &length(header.len()), &frame].concat();
    }
    if let Ok(Some(size)) = frame_size(&frame) {
        assert!(size <= MAX_FRAME);
    }
    if let Ok(request) = Request::decode(&frame) {
        assert!(request.key.len() <= MAX_KEY);
        let again = request.encode().expect("no longer than it came");
        assert_eq!(Request::decode(&again), Ok(request));
    }
    if let Ok(answer) = Answer::decode(&frame) {
        let again = answer.encode().expect("short");
        assert_eq!(Answer::decode(&again), Ok(answer));
    }
});
