//! The protocols without I/O: both ends of an exchange stepped by hand, and properties of parsers.
//!
//! One program, so that properties are tried beside the rest. Allocations are counted by thread.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

mod chain;
mod pair;
mod session_states;
mod ssh_talk;
mod stepped_client;

mod dialogs;
mod exchanges;
mod gate_transcripts;
mod inquiries;
mod lent_keys;
mod line_properties;
mod mux_bad_input;
mod mux_floods;
mod mux_keys;
mod mux_liveness;
mod mux_properties;
mod mux_streams;
mod mux_version_1;
mod narrowing;
mod permission_properties;
mod session_ends;
mod session_machines;
mod sessions_in_time;
mod socket_files;
mod ssh_binds;
mod ssh_golden;
mod ssh_lent_keys;
mod ssh_properties;
mod ssh_sessions;
