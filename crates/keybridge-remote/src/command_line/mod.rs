//! The program's command line: a file for each command, its arguments, its log and its signals.

pub(crate) mod arguments;
pub(crate) mod inspect;
pub(crate) mod remove_program;
pub(crate) mod serve;
pub(crate) mod signals;
pub(crate) mod stderr_log;
pub(crate) mod undo;
