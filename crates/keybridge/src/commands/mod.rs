//! The verbs of the command line, a file for each.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod man;
pub(crate) mod rpc;
pub(crate) mod up;
