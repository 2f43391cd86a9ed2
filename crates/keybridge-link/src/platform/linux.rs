//! Linux.

use std::os::fd::BorrowedFd;

use rustix::net::SendFlags;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

/// Has a write to a closed socket give an error alone.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// The size of a pipe: two writes, so that one can be read while the next one is written.
const PIPE_SIZE: usize = 128 * 1024;

/// Enlarges a pipe. Does nothing if it isn't a pipe or can't be larger.
pub(crate) fn enlarge_pipe(fd: BorrowedFd<'_>) {
    if fcntl_getpipe_size(fd).is_ok_and(|size| size < PIPE_SIZE) {
        let _ = fcntl_setpipe_size(fd, PIPE_SIZE);
    }
}
