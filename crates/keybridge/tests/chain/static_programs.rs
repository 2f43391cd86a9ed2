//! The programs as they are shipped are static.

use std::fs;

use crate::lab::{has_interpreter, shipped};

#[test]
#[cfg_attr(not(feature = "dist-tests"), ignore = "needs the programs of scripts/build")]
fn both_programs_are_static() {
    // One that is not, to see that the difference is seen.
    assert!(has_interpreter(&fs::read("/bin/sh").unwrap()));
    for name in ["keybridge", "keybridge-remote"] {
        assert!(!has_interpreter(&fs::read(shipped(name)).unwrap()), "{name}");
    }
}
