//! Descriptors that tokio watches.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has tokio watch a descriptor that it then owns.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe, for types whose descriptor can change while it is \
              watched; those that are passed here own theirs and never do that"
)]
pub fn register<T: AsFd + AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, interest)
}
