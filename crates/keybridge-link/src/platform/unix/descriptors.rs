//! Messages that carry descriptors (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::platform::{CLOSE_ON_EXEC, NO_SIGNAL};

/// How many descriptors a message carries at most, as the kernel has it. There is room for all of them: the
/// kernel would close the others in the receiving thread, and closing can wait.
const MOST: usize = 253;

/// Sends bytes, and descriptors with the first of them, without waiting. Returns how many bytes were sent.
pub fn send_descriptors(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let flags = NO_SIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Receives bytes, and the descriptors that come with them, without waiting. Returns how many bytes came.
pub fn receive_descriptors(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = CLOSE_ON_EXEC | RecvFlags::DONTWAIT;
    let came = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(came.bytes)
}
