//! The programs as they are shipped: static, small, and small at rest.

use std::fs;
use std::path::PathBuf;

use crate::lab::{self, Bridge, Lab, local};

const MIB: u64 = 1024 * 1024;

/// A program that was built by `scripts/build`.
fn shipped(name: &str) -> PathBuf {
    let folder = std::env::var_os("KEYBRIDGE_DIST").unwrap_or_else(|| {
        panic!("KEYBRIDGE_DIST doesn't name the folder with the built programs: run scripts/test")
    });
    let path = PathBuf::from(folder).join(name);
    assert!(path.is_file(), "{} is missing: run scripts/build", path.display());
    path
}

/// Whether a 64-bit ELF file of this machine's byte order asks for a program interpreter.
fn has_interpreter(file: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    assert_eq!(&file[..5], b"\x7fELF\x02", "a 64-bit ELF file");
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let at = |place: usize, size: usize| usize::try_from(number(place, size)).unwrap();
    let (table, size, count) = (at(0x20, 8), at(0x36, 2), at(0x38, 2));
    assert!(count > 0, "there are program headers");
    (0..count).any(|index| number(table + index * size, 4) == PT_INTERP)
}

#[test]
#[cfg_attr(not(feature = "dist-tests"), ignore = "needs the programs of scripts/build")]
fn both_programs_are_static() {
    // One that is not, to see that the difference is seen.
    assert!(has_interpreter(&fs::read("/bin/sh").unwrap()));
    for name in ["keybridge", "keybridge-remote"] {
        assert!(!has_interpreter(&fs::read(shipped(name)).unwrap()), "{name}");
    }
}

#[test]
#[cfg_attr(not(feature = "dist-tests"), ignore = "needs the programs of scripts/build")]
fn the_helper_is_small() {
    let size = fs::metadata(shipped("keybridge-remote")).unwrap().len();
    assert!(size < 9 * MIB / 4, "{} KiB", size / 1024);
}

#[test]
#[cfg_attr(not(feature = "dist-tests"), ignore = "needs the programs of scripts/build")]
fn a_bridge_at_rest_is_small() {
    let mut lab = Lab::with_key();
    let cache = lab.at("cache");
    lab.set_cache(cache);
    let mut command = lab.keybridge_at(&shipped("keybridge"));
    command.arg("up").arg(local(lab.target.path())).args(["--foreground", "--json"]);
    let bridge = Bridge::start(command);
    // After some work, as it stands most of the time.
    lab::run_with(&mut lab.target.gpg(["--detach-sign"]), b"words");
    let rest = bridge.pss();
    assert!(rest < 8 * MIB, "{} KiB", rest / 1024);
    bridge.stop();
}
