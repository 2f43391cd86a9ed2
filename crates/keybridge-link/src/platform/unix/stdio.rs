//! Standard input and output as the link's byte stream, without threads.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::super::enlarge_pipe;
use super::register;

/// A descriptor that is non-blocking until it is dropped.
#[derive(Debug)]
struct NonBlocking {
    fd: OwnedFd,
    is_pipe: bool,
    /// The flags before, to be restored: other processes may share the open file.
    flags: OFlags,
}

impl NonBlocking {
    fn new(fd: BorrowedFd<'_>, interest: Interest, name: &str) -> io::Result<AsyncFd<Self>> {
        let fd = fd.try_clone_to_owned()?;
        enlarge_pipe(fd.as_fd());
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        let is_pipe = FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Fifo;
        let fd = Self { fd, is_pipe, flags };
        register(fd, interest).map_err(|error| {
            let why = "a pipe, a socket or a terminal is expected";
            io::Error::new(error.kind(), format!("{name} can't carry the link ({error}); {why}"))
        })
    }
}

impl AsFd for NonBlocking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for NonBlocking {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for NonBlocking {
    fn drop(&mut self) {
        // Fails for a closed pipe, which doesn't matter.
        let _ = fcntl_setfl(&self.fd, self.flags);
    }
}

/// Standard input, as one direction of a link.
#[derive(Debug)]
pub struct Input(AsyncFd<NonBlocking>);

/// Standard output, as the other direction of a link.
#[derive(Debug)]
pub struct Output(AsyncFd<NonBlocking>);

impl Input {
    /// Opens it. Fails if it can't be polled.
    pub fn open() -> io::Result<Self> {
        NonBlocking::new(io::stdin().as_fd(), Interest::READABLE, "standard input").map(Self)
    }
}

impl Output {
    /// Opens it. Fails if it can't be polled.
    pub fn open() -> io::Result<Self> {
        NonBlocking::new(io::stdout().as_fd(), Interest::WRITABLE, "standard output").map(Self)
    }
}

/// Replaces standard input, output and error by `/dev/null`, so that no process at their other ends
/// waits for this one.
pub fn detach_stdio() -> io::Result<()> {
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let size = room.len();
            match guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), room)?)) {
                Ok(Ok(count)) => {
                    if 0 < count && count < size && self.0.get_ref().is_pipe {
                        // A short read has emptied it; the kernel wakes us when there is more. Not so
                        // with a terminal, which returns a line at a time.
                        guard.clear_ready();
                    }
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            match guard.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
