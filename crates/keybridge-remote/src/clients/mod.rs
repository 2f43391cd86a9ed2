//! The programs that connect to the bridge's sockets: who is let in, how many, and one session for
//! each.

pub(crate) mod accept;
mod admission;
mod git;
pub(crate) mod pipes;
pub(crate) mod session;
