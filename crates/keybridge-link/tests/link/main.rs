//! Links with the loops of both ends running.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a panic is how a test fails")]

mod liveness;
mod pump;
mod scripted;
mod streams;
