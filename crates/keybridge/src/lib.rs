//! The host's half of keybridge: agents, targets, the bridge between them, and the commands.

pub mod agent;
pub mod askpass;
pub mod bridge;
pub mod caller;
pub mod cli;
pub mod config;
pub mod gnupg;
pub mod helper;
pub mod interface;
pub mod keyring;
pub mod keys;
pub mod limits;
pub mod log;
pub mod output;
pub mod setup;
pub mod supervisor;
pub mod target;

mod commands;
mod doctor;
mod error;
mod join;
mod platform;
mod program;
mod shell_quote;

pub use error::{Error, ErrorKind, Result};
