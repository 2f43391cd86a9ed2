//! Linux.

mod lock_holder;
mod network;
mod own_file;

pub(crate) use lock_holder::LockHolder;
pub(crate) use network::NetworkChanges;
pub(crate) use own_file::read_own_file;
