//! Apple's systems.

use std::os::fd::BorrowedFd;

use rustix::net::SendFlags;

/// There is no such flag; a Rust program ignores the signal.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Does nothing: the kernel enlarges a pipe by itself, and has no call for it.
pub(crate) const fn enlarge_pipe(_: BorrowedFd<'_>) {}
