//! What differs between systems: one module for each, with the same items.
//!
//! A local socket is a Unix socket, or a named pipe of Windows.

#[cfg(target_os = "macos")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "macos")]
use apple::{NO_SIGNAL, enlarge_pipe};
#[cfg(target_os = "linux")]
use linux::{NO_SIGNAL, enlarge_pipe};
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
