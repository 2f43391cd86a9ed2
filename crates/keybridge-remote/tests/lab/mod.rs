//! A host in the test's own process, with the real helper at the other end of two pipes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod helper;
mod home;
mod user;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use helper::{Helper, News, Setup, relay};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use home::Home;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use keybridge_lab::{
    AT_ONCE, AsyncClient as Client, FAILURE, NO_KEYS, ScriptedAgent, SshClient, SshHome, agreeable,
    dial, on_this_thread as run, until,
};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use user::User;
