//! `keybridge doctor`, on set-ups that real parts make and the tests break: the broken link is named first,
//! the fix is run as it was printed, and then nothing is broken. `scripts/lab` starts the engine and makes the
//! images.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;
mod scene;

mod at_home;
mod bad_input;
mod in_target;
mod on_the_way;
mod unbroken;
