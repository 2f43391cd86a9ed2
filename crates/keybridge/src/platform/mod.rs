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

use keybridge_proto::Lane;

#[cfg(target_os = "macos")]
pub use apple::PassedClients;
#[cfg(target_os = "macos")]
pub(crate) use apple::{InUse, PassedSocket};
#[cfg(target_os = "macos")]
pub(crate) use apple::{NetworkChanges, connect_directly, read_own_file};
#[cfg(target_os = "linux")]
pub use linux::PassedClients;
#[cfg(target_os = "linux")]
pub(crate) use linux::{InUse, PassedSocket};
#[cfg(target_os = "linux")]
pub(crate) use linux::{NetworkChanges, connect_directly, read_own_file};
pub(crate) use programs::{find_program, program};
pub(crate) use system::{System, expand, variable};

/// A helper's process on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HelperProcess {
    pub(crate) pid: i32,
    pub(crate) place: HelperPlace,
}

/// Where a helper on this machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelperPlace {
    /// In a container, whose engine reports the process. The engine may be on another machine.
    Container,
    /// Beside this process, which has started it.
    Here,
}

/// What a helper has passed.
#[derive(Debug)]
pub(crate) enum Passed {
    /// A client of a lane.
    Client(PassedSocket, Lane),
    /// A client that is gone or has another user.
    NotServed,
    /// Nothing will come any more.
    End,
}
