//! The programs that connect to the bridge's sockets: who is let in, how many, and one session for
//! each on either lane.

pub(crate) mod accept;
mod git;
pub(crate) mod peer_check;
pub(crate) mod pipes;
pub(crate) mod session;
mod session_limit;
