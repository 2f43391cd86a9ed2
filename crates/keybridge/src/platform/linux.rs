//! Linux.

mod caller;
mod closing;
mod direct;
mod network;
mod own_file;
mod passed_clients;
mod passed_connection;
mod send_ring;

use keybridge_link::SendQueue;

pub(crate) use caller::{CallerProcess, Peer, TargetProcesses};
pub(crate) use direct::connect as connect_directly;
pub(crate) use network::NetworkChanges;
pub(crate) use own_file::read_own_file;
pub use passed_clients::PassedClients;
pub(crate) use passed_clients::{PassedSocket, Received};
pub(crate) use passed_connection::PassedConnection;

/// For messages to several sockets at once.
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
pub(crate) fn send_queue() -> Option<SendQueue> {
    Some(SendQueue::new(send_ring::SendRing::default()))
}
