//! The host's half of keybridge: agents, targets, the bridge between them, and the commands.
#![cfg_attr(not(windows), forbid(unsafe_code))]

pub mod agent;
pub mod askpass;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod engine;
pub mod git;
pub mod gnupg;
pub mod interface;
pub mod keyring;
pub mod keys;
pub mod log;
pub mod output;
pub mod ssh_agent;
pub mod supervisor;
pub mod target;

mod asking;
mod candidates;
mod checks;
mod commands;
mod container;
mod doctor;
mod editor;
mod error;
mod facts;
mod helper;
mod hint;
mod join;
mod known_hosts;
mod platform;
mod program;
mod record;
mod setup;
mod shell_quote;

pub use error::{Error, ErrorKind, Result};
pub use hint::Hint;
pub use platform::{close_inherited, forbid_core_dumps};
