//! Waiting for what has to come.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// What a whole test has: more than one wait, so that a failure says what was waited for.
const TEST_TIME: Duration = Duration::from_mins(5);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    assert!(within(PATIENCE, is_so), "waited in vain: {what}");
}

/// Waits until something is so, for so long; whether it is.
pub fn within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() >= time {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Waits until something is so, while everything else in the test goes on.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_async(what, async || is_so()).await;
}

/// The same for a condition that has to be awaited itself.
pub async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(POLL).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// Runs a test on one thread, as the programs run. It has to end in time.
#[track_caller]
pub fn on_this_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        timeout(TEST_TIME, test).await.expect("the test ends in time");
    });
}
