//! The programs as they are shipped: static, small, and small at rest.

use std::fs;

use crate::lab::{self, Bridge, Lab, has_interpreter, local, shipped};

const MIB: u64 = 1024 * 1024;

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
