//! What differs between systems: one module for each, with the same items, and a table of what else is
//! known about each of them.

#[cfg(target_os = "macos")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
// Where it isn't used it is tested.
#[cfg(not(target_os = "linux"))]
mod other_kernel;
#[cfg(any(test, not(target_os = "linux")))]
mod polled_network;
mod privacy;
mod programs;
mod system;

#[cfg(target_os = "macos")]
pub use apple::PassedClients;
#[cfg(target_os = "macos")]
pub(crate) use apple::{
    CallerProcess, NetworkChanges, PassedConnection, PassedSocket, Peer, Received, TargetProcesses,
    connect_directly, read_own_file, send_queue,
};
#[cfg(target_os = "linux")]
pub use linux::PassedClients;
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    CallerProcess, NetworkChanges, PassedConnection, PassedSocket, Peer, Received, TargetProcesses,
    connect_directly, read_own_file, send_queue,
};
pub(crate) use privacy::Privacy;
pub(crate) use programs::{find_program, program};
pub(crate) use system::{ServiceState, Shell, System, expand, variable};
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(unix)]
pub use unix::{forbid_core_dumps, prepare_terminal};
#[cfg(windows)]
pub(crate) use windows::*;
#[cfg(windows)]
pub use windows::{PassedClients, forbid_core_dumps, prepare_terminal};

/// Tests of what only Unix has.
#[cfg(all(test, unix))]
macro_rules! tests_on_unix {
    ($($item:item)*) => { $($item)* };
}
#[cfg(not(all(test, unix)))]
macro_rules! tests_on_unix {
    ($($item:item)*) => {};
}
pub(crate) use tests_on_unix;

/// Ctrl-C, as a terminal sends it.
pub(crate) const INTERRUPT: u8 = 3;

/// A helper's process on this machine.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "none is on another system's kernel")
)]
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
