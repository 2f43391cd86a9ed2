//! Apple's systems. This compiles, and has never been run.

pub use super::other_kernel::PassedClients;
pub(crate) use super::other_kernel::{
    CallerProcess, PassedConnection, PassedSocket, Peer, Received, TargetProcesses,
    connect_directly, read_own_file, send_queue,
};
pub(crate) use super::polled_network::NetworkChanges;
