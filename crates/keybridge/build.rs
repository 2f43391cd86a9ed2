//! Copies the static helpers in, if `scripts/build` has made them: `KEYBRIDGE_HELPERS` names a
//! folder of files `keybridge-remote-PROCESSOR`. The version that the program shows names them.
#![allow(clippy::expect_used, reason = "a build script has nobody else to tell")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

fn main() {
    println!("cargo::rerun-if-env-changed=KEYBRIDGE_HELPERS");
    let mut helpers = match env::var_os("KEYBRIDGE_HELPERS") {
        Some(folder) => helpers_in(&folder),
        None => Vec::new(),
    };
    helpers.sort();
    let mut list = String::from("const CARRIED: &[(&str, &str, &[u8])] = &[");
    for (processor, path) in &helpers {
        let file = path.to_str().expect("a path in UTF-8");
        let program = fs::read(path).expect("a helper that can be read");
        let hash = format!("{:x}", HexDisplay(&Sha256::digest(&program)));
        write!(list, "({processor:?}, {hash:?}, include_bytes!({file:?})),").expect("a string");
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").expect("cargo gives OUT_DIR");
    fs::write(Path::new(&out).join("carried.rs"), list).expect("OUT_DIR can be written");

    let processors: Vec<&str> = helpers.iter().map(|(processor, _)| processor.as_str()).collect();
    let carried = match processors.as_slice() {
        [] => "no helper".to_owned(),
        [one] => format!("helper: {one}"),
        several => format!("helpers: {}", several.join(", ")),
    };
    let version = env::var("CARGO_PKG_VERSION").expect("cargo gives the version");
    println!("cargo::rustc-env=KEYBRIDGE_VERSION={version} ({carried})");
}

/// The helpers in a folder, with the processor of each.
fn helpers_in(folder: &OsStr) -> Vec<(String, PathBuf)> {
    println!("cargo::rerun-if-changed={}", Path::new(folder).display());
    let entries = fs::read_dir(folder).expect("KEYBRIDGE_HELPERS is a folder");
    let paths = entries.map(|entry| entry.expect("a folder that can be read").path());
    paths
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let processor = name.strip_prefix("keybridge-remote-")?.to_owned();
            Some((processor, path))
        })
        .collect()
}
