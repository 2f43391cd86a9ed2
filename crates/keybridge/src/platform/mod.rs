//! What differs between systems: one module for each, with the same items, and a table of what else is
//! known about each of them.

#[cfg(target_os = "macos")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;
// Where it isn't used it is tested.
#[cfg(any(test, target_os = "macos"))]
mod polled_network;
mod programs;
mod system;

#[cfg(target_os = "macos")]
pub(crate) use apple::{
    CallerProcess, NetworkChanges, Peer, TargetProcesses, connect_directly, read_own_file,
};
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    CallerProcess, NetworkChanges, Peer, TargetProcesses, connect_directly, read_own_file,
};
pub(crate) use programs::{find_program, program};
pub(crate) use system::{System, expand, variable};
