//! What differs between systems: one module for each, with the same functions.

#[cfg(target_os = "macos")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "macos")]
pub(crate) use apple::{CLOSE_ON_EXEC, enlarge_pipe};
#[cfg(target_os = "linux")]
pub(crate) use linux::{CLOSE_ON_EXEC, enlarge_pipe};
