//! Linux.

mod caller;
mod closing;
mod direct;
mod network;
mod own_file;
mod passed_clients;
mod passed_connection;

pub(crate) use caller::{CallerProcess, Peer, TargetProcesses};
pub(crate) use direct::connect as connect_directly;
pub(crate) use network::NetworkChanges;
pub(crate) use own_file::read_own_file;
pub use passed_clients::PassedClients;
pub(crate) use passed_clients::{PassedSocket, Received};
pub(crate) use passed_connection::PassedConnection;
