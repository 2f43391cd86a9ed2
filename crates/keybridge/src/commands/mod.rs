//! The verbs of the command line, a file for each that does something of its own.

pub(crate) mod approve;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod env;
pub(crate) mod generated;
pub(crate) mod link;
pub(crate) mod logs;
pub(crate) mod record;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod sync;
mod targets;
pub(crate) mod up;
pub(crate) mod watch;
