//! Links with the loops of both ends running, sessions and questions between scripted ends.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a panic is how a test fails")]

mod ask;
mod liveness;
mod pump;
mod scripted;
mod streams;
