//! A host in the test's own process, with the real helper at the other end of two pipes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod client;
mod helper;
mod home;
mod scripted_agent;
pub mod ssh;

use std::time::Duration;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use client::{Client, dial};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use helper::{Helper, News, Setup, relay};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use home::Home;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use keybridge_lab::{on_this_thread as run, until};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use scripted_agent::{ScriptedAgent, agreeable};

/// A client whose bridge is down has its error by then.
pub const AT_ONCE: Duration = Duration::from_secs(1);
