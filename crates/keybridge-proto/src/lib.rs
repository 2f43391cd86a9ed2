//! The protocols of keybridge, without I/O.
//!
//! Bytes, events and `now` go in; bytes and events come out. This crate uses no socket, no clock, no
//! file and no `unsafe`, so every exchange can be tested step by step.
#![forbid(unsafe_code)]

pub mod assuan;
pub mod gate;
pub mod git;
pub mod gpg_listing;
pub mod inspection;
pub mod mux;
pub mod permission;
pub mod report;
pub mod session;
pub mod socket_file;
pub mod ssh;
pub mod wildcard;

mod lane;
mod operation;
mod platform;
mod printable;
mod secret;
mod shell_quote;

pub use lane::{Lane, PerLane, UnknownLane};
pub use operation::{Operation, OperationSet, UnknownOperation};
pub use platform::os_string;
pub use printable::{
    Printable, controls_a_terminal, last_line, printable, printable_json, printable_up_to,
};
pub use secret::Secret;
pub use shell_quote::{in_single_quotes, posix_word};
