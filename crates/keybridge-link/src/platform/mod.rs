//! What differs between systems: one module for each, with the same functions.

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_vendor = "apple")]
pub(crate) use apple::enlarge_pipe;
#[cfg(target_os = "linux")]
pub(crate) use linux::enlarge_pipe;
