//! Bridges that come back by themselves: every part of the chain is harmed while clients sign, and
//! brought back.
//!
//! One program, so that what takes its time runs beside the rest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/faults/mod.rs"]
mod faults;
#[path = "../lab/mod.rs"]
mod lab;

mod harmed;
mod hostile;
mod link_down;
mod state;
mod watched;

/// Runs a test for each of several things side by side, in threads that carry their names. What fails
/// doesn't keep the others from their end.
fn side_by_side<T: std::fmt::Debug + Send>(things: impl IntoIterator<Item = T>, test: fn(T)) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = things
            .into_iter()
            .map(|thing| {
                let name = format!("{thing:?}");
                let thread = std::thread::Builder::new().name(name.clone());
                (name, thread.spawn_scoped(scope, move || test(thing)).unwrap())
            })
            .collect();
        let ended = threads.into_iter().map(|(name, thread)| (name, thread.join().is_ok()));
        let failed: Vec<String> = ended.filter(|(_, is_ok)| !is_ok).map(|(name, _)| name).collect();
        assert!(failed.is_empty(), "these have failed: {}", failed.join(", "));
    });
}
