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

use std::future::Future;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::timeout;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use client::{Client, dial};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use helper::{Helper, News, Setup, relay};
#[allow(unused_imports, reason = "each test file uses its part")]
pub use home::Home;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use scripted_agent::{ScriptedAgent, agreeable};

/// A test that takes longer hangs.
const TEST_TIME: Duration = Duration::from_mins(1);

/// A client whose bridge is down has its error by then.
pub const AT_ONCE: Duration = Duration::from_secs(1);

/// Runs a test on one thread.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        timeout(TEST_TIME, test).await.expect("the test hangs");
    });
}

/// Waits until something holds; a test that waits for ever is ended by its own limit.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
