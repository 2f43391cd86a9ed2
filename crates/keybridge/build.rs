//! Copies the static helpers in, if `scripts/build` has made them: `KEYBRIDGE_HELPERS` names a
//! folder of files `keybridge-remote-PROCESSOR`.
#![allow(clippy::expect_used, reason = "a build script has nobody else to tell")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use sha2::{Digest, Sha256};

fn main() {
    println!("cargo::rerun-if-env-changed=KEYBRIDGE_HELPERS");
    let mut list = String::from("const CARRIED: &[(&str, &str, &[u8])] = &[");
    if let Some(folder) = env::var_os("KEYBRIDGE_HELPERS") {
        println!("cargo::rerun-if-changed={}", Path::new(&folder).display());
        for entry in fs::read_dir(&folder).expect("KEYBRIDGE_HELPERS is a folder") {
            let path = entry.expect("a folder that can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(processor) = name.strip_prefix("keybridge-remote-") {
                let file = path.to_str().expect("a path in UTF-8");
                let program = fs::read(&path).expect("a helper that can be read");
                let hash = format!("{:x}", Sha256::digest(&program));
                write!(list, "({processor:?}, {hash:?}, include_bytes!({file:?})),")
                    .expect("a string");
            }
        }
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").expect("cargo gives OUT_DIR");
    fs::write(Path::new(&out).join("carried.rs"), list).expect("OUT_DIR can be written");
}
