//! What differs between systems: one module for each, with the same functions.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::os_string;
#[cfg(windows)]
pub use windows::os_string;
