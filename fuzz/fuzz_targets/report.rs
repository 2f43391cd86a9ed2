//! What a helper says about itself and finds in its target, and the head of a series of keys.
#![no_main]

use keybridge_proto::inspection::Inspection;
use keybridge_proto::report::{Failure, KeysHeader, Report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    if let Ok(report) = Report::decode(payload) {
        assert_eq!(Report::decode(&report.encode()), Ok(report));
    }
    let failure = Failure::decode(payload);
    assert_eq!(Failure::decode(failure.encode().as_bytes()).message, failure.message);
    if let Ok(inspection) = Inspection::parse(payload) {
        assert_eq!(Inspection::parse(&inspection.to_bytes()), Ok(inspection));
    }
    if let Some(head) = KeysHeader::parse(payload) {
        assert!(head.encode().len() <= KeysHeader::MAX_SIZE);
    }
});
