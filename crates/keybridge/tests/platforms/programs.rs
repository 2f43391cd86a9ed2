//! The programs for each processor, as they are shipped.

use std::fs;

use crate::lab::{has_interpreter, run, shipped, text};

const MIB: u64 = 1024 * 1024;

/// Those of this machine, and those for arm64.
const FOLDERS: [&str; 2] = ["", "aarch64/"];

#[test]
fn all_are_static_and_small() {
    for folder in FOLDERS {
        for (name, limit) in [("keybridge", 10 * MIB), ("keybridge-remote", 9 * MIB / 4)] {
            let program = fs::read(shipped(&format!("{folder}{name}"))).unwrap();
            assert!(!has_interpreter(&program), "{folder}{name}");
            let size = u64::try_from(program.len()).unwrap();
            println!("{folder}{name}: {} KiB", size / 1024);
            assert!(size < limit, "{folder}{name} has {} KiB", size / 1024);
        }
    }
}

/// An emulator runs the second one.
#[test]
fn the_version_names_the_helpers() {
    for folder in FOLDERS {
        let mut program = std::process::Command::new(shipped(&format!("{folder}keybridge")));
        let version = text(&run(program.arg("--version")));
        let expected =
            format!("keybridge {} (helpers: aarch64, x86_64)\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(version, expected, "{folder}");
    }
}
