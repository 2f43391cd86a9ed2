//! What holds for every engine: the test files of each run these.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "each test file uses a part of it, and a panic is how a test fails"
)]

pub mod git;
pub mod life;
pub mod presence;
pub mod signs;
pub mod watch;
