//! A user with a home of the test's own, which takes root: `/etc/passwd` says where a home is, and ssh
//! listens to nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

mod git;
mod inspect;
mod other_users_home;
mod question;
mod ssh_faults;
mod ssh_lane;
mod version_1;
