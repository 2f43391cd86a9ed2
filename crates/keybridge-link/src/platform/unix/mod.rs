//! What all Unix systems have in common.

mod local_socket;
mod stdio;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use local_socket::LocalSocket;
pub use stdio::{Input, Output, detach_stdio};
pub use tokio::net::UnixStream as LocalStream;

/// Has tokio poll a descriptor, and hands it over.
#[expect(
    deprecated,
    reason = "its replacement is unsafe, for types whose descriptor can change while it is polled; the \
              types here own theirs and never change it"
)]
pub fn register<T: AsFd + AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}
