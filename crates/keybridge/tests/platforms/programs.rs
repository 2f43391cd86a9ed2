//! The programs for each processor, as they are shipped.

use std::fs;

use crate::lab::{command, has_interpreter, run, shipped, text};

/// Those of this machine, and those for arm64.
const FOLDERS: [&str; 2] = ["", "aarch64/"];

/// What every Windows from version 10 on has.
const WINDOWS_LIBRARIES: [&str; 7] = [
    "advapi32.dll",
    "bcryptprimitives.dll",
    "kernel32.dll",
    "msvcrt.dll",
    "ntdll.dll",
    "userenv.dll",
    "ws2_32.dll",
];

#[test]
fn all_are_static() {
    for folder in FOLDERS {
        for name in ["keybridge", "keybridge-remote"] {
            let program = fs::read(shipped(&format!("{folder}{name}"))).unwrap();
            assert!(!has_interpreter(&program), "{folder}{name}");
        }
    }
}

/// Windows has these libraries, and nobody has to install another one.
#[test]
fn the_one_for_windows_needs_nothing_but_windows() {
    let program = shipped("windows/keybridge.exe");
    let mut list = command("x86_64-w64-mingw32-objdump");
    let listing = text(&run(list.arg("-p").arg(&program)));
    let imported = listing.lines().filter_map(|line| line.trim().strip_prefix("DLL Name: "));
    let imported: Vec<String> = imported.map(str::to_lowercase).collect();
    assert!(imported.contains(&"kernel32.dll".to_owned()), "{imported:?}");
    for name in &imported {
        let is_of_windows = name.starts_with("api-ms-win-") || WINDOWS_LIBRARIES.contains(&&**name);
        assert!(is_of_windows, "{name}");
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
