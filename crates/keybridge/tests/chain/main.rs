//! The whole chain on one machine: the real programs, gpg and git, in homes of a test's own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

mod border;
mod bounds;
mod ceiling;
mod chatter;
mod desktop;
mod dialogs;
mod doctor;
mod doctor_hostile;
mod down;
mod foreground;
mod forged_block;
mod gate;
mod git_lane;
mod git_objects;
mod git_pipes;
mod gpg;
mod identical;
mod interface_memory;
mod limits;
mod link_carried;
mod no_target;
mod purge;
mod questions;
mod record;
mod refusals;
mod second_command;
mod secrets;
mod settings;
mod several_targets;
mod static_programs;
mod target_commands;
mod undo;
mod uses;
mod version_1;
