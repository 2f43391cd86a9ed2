//! The host's half of keybridge: agents, targets, the bridge between them, and the commands.
#![forbid(unsafe_code)]

mod error;

pub use error::{Error, ErrorKind, Result};
