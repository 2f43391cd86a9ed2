//! Sends messages to several sockets in one system call, by the kernel's `io_uring`.
//!
//! No more of it is used: each message is sent or refused before the call returns, and the kernel keeps
//! nothing. Where it isn't there or is forbidden, messages are sent one by one.
#![expect(unsafe_code, reason = "the kernel is given pointers to the messages")]

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use keybridge_link::{Message, SendTogether};
use rustix::net::{SendFlags, send};

/// How many messages one call sends.
const ENTRIES: u32 = 64;

const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// It is made when there are several messages for the first time.
#[derive(Debug, Default)]
pub(super) enum SendRing {
    #[default]
    Unused,
    Ready(Box<Ring>),
    Unusable,
}

impl SendTogether for SendRing {
    fn send(&mut self, messages: &[Message<'_>], taken: &mut Vec<usize>) {
        if messages.len() > 1 && matches!(self, Self::Unused) {
            *self = Self::new();
        }
        let sent_by_ring = match self {
            Self::Ready(ring) if messages.len() > 1 => ring.send(messages, taken),
            Self::Ready(_) | Self::Unused | Self::Unusable => {
                taken.extend(messages.iter().map(|(socket, bytes)| {
                    // The owner of the socket writes the rest, and gets the error.
                    send(socket, bytes, FLAGS).unwrap_or(0)
                }));
                Ok(())
            }
        };
        if let Err(error) = sent_by_ring {
            tracing::debug!(%error, "messages are sent one by one from now on");
            *self = Self::Unusable;
        }
    }
}

impl SendRing {
    fn new() -> Self {
        Ring::new().map(Box::new).map_or_else(
            |error| {
                tracing::debug!(%error, "messages are sent one by one");
                Self::Unusable
            },
            Self::Ready,
        )
    }
}

pub(super) struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// Fails before Linux 6.0. Later kernels are known to never wait with a message that has the flag
    /// `DONTWAIT`.
    fn new() -> io::Result<Self> {
        IoUring::builder().setup_single_issuer().build(ENTRIES).map(Self)
    }

    /// After an error, messages that weren't sent count as not taken, and the ring must be dropped.
    fn send(&mut self, messages: &[Message<'_>], taken: &mut Vec<usize>) -> io::Result<()> {
        for messages in messages.chunks(ENTRIES as usize) {
            let first = taken.len();
            taken.resize(first + messages.len(), 0);
            let counts = taken.get_mut(first..).unwrap_or_default();
            self.submit(messages)?;
            self.complete(counts)?;
        }
        Ok(())
    }

    fn submit(&mut self, messages: &[Message<'_>]) -> io::Result<()> {
        let mut queue = self.0.submission();
        for (number, (socket, bytes)) in (0..).zip(messages) {
            let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
            let message = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), length)
                .flags(FLAGS.bits().cast_signed())
                .build()
                .user_data(number);
            // SAFETY: the bytes and the socket are borrowed until `Self::send` returns. By then the kernel
            // has sent or refused the message: `DONTWAIT` keeps it from doing that later. What it hasn't
            // seen after an error goes with the ring.
            unsafe { queue.push(&message) }.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Has the kernel send what was submitted, and notes how much it took of each message.
    fn complete(&mut self, counts: &mut [usize]) -> io::Result<()> {
        let mut missing = counts.len();
        while missing > 0 {
            let entered = self.0.submit_and_wait(missing);
            for completion in self.0.completion() {
                missing = missing.saturating_sub(1);
                let number = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
                if let Some(count) = counts.get_mut(number) {
                    *count = usize::try_from(completion.result()).unwrap_or(0);
                }
            }
            match entered {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends the same message to each socket.
    fn send_to(ring: &mut SendRing, sockets: &[UnixStream], message: &[u8]) -> Vec<usize> {
        let messages: Vec<_> = sockets.iter().map(|socket| (socket.as_fd(), message)).collect();
        let mut taken = Vec::new();
        ring.send(&messages, &mut taken);
        taken
    }

    fn pairs(count: usize) -> (Vec<UnixStream>, Vec<UnixStream>) {
        (0..count).map(|_| UnixStream::pair().unwrap()).unzip()
    }

    fn fill(socket: &UnixStream) {
        socket.set_nonblocking(true).unwrap();
        while (&*socket).write(&[0; 4096]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
    }

    /// With a ring, unless it is forbidden here, and without.
    fn on_both_ways(test: impl Fn(&mut SendRing)) {
        let mut ring = SendRing::default();
        test(&mut ring);
        let is_allowed = Ring::new().is_ok();
        assert_eq!(matches!(ring, SendRing::Ready(_)), is_allowed, "{ring:?}");
        let mut none = SendRing::Unusable;
        test(&mut none);
        assert!(matches!(none, SendRing::Unusable), "{none:?}");
    }

    #[test]
    fn every_socket_gets_its_message() {
        on_both_ways(|ring| {
            // More than one call sends.
            let (ours, theirs) = pairs(3 * ENTRIES as usize + 1);
            for _ in 0..2 {
                assert_eq!(send_to(ring, &ours, b"hello"), vec![5; ours.len()]);
                for mut socket in &theirs {
                    let mut got = [0; 5];
                    socket.read_exact(&mut got).unwrap();
                    assert_eq!(&got, b"hello");
                }
            }
        });
    }

    #[test]
    fn sockets_that_are_full_or_closed_are_not_waited_for() {
        on_both_ways(|ring| {
            let (ours, mut theirs) = pairs(4);
            fill(&ours[0]);
            ours[1].shutdown(Shutdown::Write).unwrap();
            drop(theirs.remove(2));
            assert_eq!(send_to(ring, &ours, b"hello"), [0, 0, 0, 5]);
        });
    }

    #[test]
    fn one_message_needs_no_ring() {
        let (ours, _theirs) = pairs(1);
        let mut ring = SendRing::default();
        assert_eq!(send_to(&mut ring, &ours, b"hello"), [5]);
        assert!(matches!(ring, SendRing::Unused), "{ring:?}");
    }
}
