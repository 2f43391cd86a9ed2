//! The verbs of the command line, a file for each.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod env;
pub(crate) mod link;
pub(crate) mod logs;
pub(crate) mod man;
mod named;
pub(crate) mod rpc;
pub(crate) mod run;
mod selection;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod sync;
mod targets;
pub(crate) mod up;
pub(crate) mod watch;
