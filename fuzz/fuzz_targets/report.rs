//! What a helper says about itself, and the head of a series of keys.
#![no_main]

use keybridge_proto::report::{Failure, KeysHeader, Ready};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let ready = Ready::decode(payload);
    assert_eq!(Ready::decode(&ready.encode()), ready);
    let failure = Failure::decode(payload);
    if !failure.message.is_empty() {
        assert_eq!(Failure::decode(failure.encode().as_bytes()), failure);
    }
    if let Some(head) = KeysHeader::parse(payload) {
        assert!(head.encode().len() <= KeysHeader::MAX_SIZE);
    }
});
