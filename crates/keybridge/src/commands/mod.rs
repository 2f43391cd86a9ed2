//! The verbs of the command line, a file for each.

pub mod completions;
pub mod demo;
pub mod man;
pub mod rpc;
pub mod up;
