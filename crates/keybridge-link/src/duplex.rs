//! What the two ends of a session have in common, whatever carries their bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;

use crate::is_transient;

/// One end of a byte stream, owned by one task. Only what says so waits; dropping it
/// closes the connection.
pub trait Duplex {
    /// Ready when something may be new: what `wants` names, or a hang-up where the system reports one.
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>>;

    /// Reads what is there, 0 at the end. What isn't read stays with the peer.
    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as there is room for.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Tells the peer that nothing more comes. What it still has to say can be read.
    fn end_output(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the connection after what was written.
    fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the peer is gone both ways, as far as that is noticed without reading.
    fn hung_up(&self) -> bool {
        false
    }

    /// Waits for something to read; 0 at the end.
    fn receive(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        async {
            loop {
                match self.try_read(buffer) {
                    Err(error) if is_transient(&error) => {
                        poll_fn(|context| self.poll_ready(Some(Interest::READABLE), context))
                            .await?;
                    }
                    result => return result,
                }
            }
        }
    }

    /// Waits for so many bytes.
    fn receive_exact(&mut self, count: usize) -> impl Future<Output = io::Result<Vec<u8>>> {
        async move {
            let mut bytes = vec![0; count];
            let mut filled = 0;
            while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match self.receive(rest).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => filled += count,
                }
            }
            Ok(bytes)
        }
    }

    /// Writes all of `bytes`, waiting for room.
    fn send_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        async move {
            while !bytes.is_empty() {
                match self.try_write(bytes) {
                    Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                    Err(error) if is_transient(&error) => {
                        poll_fn(|context| self.poll_ready(Some(Interest::WRITABLE), context))
                            .await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }
}

impl Duplex for TcpStream {
    fn poll_ready(
        &mut self,
        wants: Option<Interest>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if wants.is_some_and(Interest::is_writable)
            && let Poll::Ready(result) = self.poll_write_ready(context)
        {
            return Poll::Ready(result);
        }
        if wants.is_some_and(Interest::is_readable) {
            return self.poll_read_ready(context);
        }
        Poll::Pending
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, buffer)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }

    fn end_output(&mut self) -> io::Result<()> {
        match Pin::new(self).poll_shutdown(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
