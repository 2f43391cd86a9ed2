//! A host in the test's own process, with the real helper at the other end of two pipes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod git_home;
mod helper;
mod home;
mod user;

use std::sync::LazyLock;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use git_home::{GitHome, OBJECT};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use helper::{Helper, News, Setup, relay};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use home::Home;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use keybridge_lab::{
    AsyncClient as Client, FAILURE, NO_KEYS, ScriptedAgent, SshClient, SshHome, agreeable, dial,
    on_this_thread as run, until,
};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use user::User;

/// The helper that was built with the tests, or the one that `KEYBRIDGE_TEST_HELPER` names: an emulator may
/// run it.
pub fn program() -> &'static str {
    static NAMED: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("KEYBRIDGE_TEST_HELPER").ok());
    NAMED.as_deref().unwrap_or(env!("CARGO_BIN_EXE_keybridge-remote"))
}

/// The processor of the helper, by the header of its file.
fn processor() -> &'static str {
    let file = std::fs::read(program()).unwrap();
    match (&file[..4], file[18]) {
        (b"\x7fELF", 62) => "x86_64",
        (b"\x7fELF", 183) => "aarch64",
        other => panic!("{}: {other:?}", program()),
    }
}

/// Whether the helper is emulated. To others, such a process is the emulator.
pub fn is_emulated() -> bool {
    processor() != std::env::consts::ARCH
}
