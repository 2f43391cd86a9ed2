//! Other processors and Windows: `scripts/test --platforms` builds the programs, and emulates what this machine
//! hasn't.
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

mod arm64_container;
mod arm64_host;
mod programs;
mod windows;
