//! The agent side in the process of a test, with a real gpg-agent.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(unused_imports, reason = "each test file uses a part of it")]

use keybridge::gnupg::Gnupg;

pub use keybridge_lab::{Home, PATIENCE, on_this_thread as local};

/// The GnuPG that works on a home.
pub fn gnupg(home: &Home) -> Gnupg {
    Gnupg::new(Some(home.path().to_owned()))
}
