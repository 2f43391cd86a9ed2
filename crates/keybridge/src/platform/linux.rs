//! Linux.

mod caller;
mod direct;
mod network;
mod own_file;

pub(crate) use caller::{CallerProcess, Peer, TargetProcesses};
pub(crate) use direct::connect as connect_directly;
pub(crate) use network::NetworkChanges;
pub(crate) use own_file::read_own_file;
