//! The helper alone, with a host in the test's own process.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

mod checks;
mod git_entries;
mod guard;
mod handover;
mod inspect;
mod keys;
mod life;
mod outlive;
mod sessions;
mod two;
mod undo;
