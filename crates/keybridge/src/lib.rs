//! The host's half of keybridge: agents, targets, the bridge between them, and the commands.
#![forbid(unsafe_code)]

pub mod config;
pub mod helper;
pub mod report;
pub mod target;

mod error;
mod signals;

pub use error::{Error, ErrorKind, Result};
