//! The protocols of keybridge, without I/O.
//!
//! Bytes, events and `now` go in; bytes and events come out. This crate uses no socket, no clock, no
//! file and no `unsafe`, so every exchange can be tested step by step.
#![forbid(unsafe_code)]

pub mod assuan;
pub mod direct;
pub mod gate;
pub mod inspection;
pub mod mux;
pub mod report;
pub mod session;
pub mod socket_file;
pub mod ssh;
pub mod wildcard;

mod lane;
mod platform;
mod printable;
mod secret;

pub use lane::{Lane, PerLane, UnknownLane};
pub use platform::os_string;
pub use printable::{Printable, controls_a_terminal, printable, printable_json};
pub use secret::Secret;
