//! Standard input and output as the link's byte stream. A thread reads, since what was inherited can't be
//! polled.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdout};
use tokio::sync::mpsc;

/// The size of one read: two DATA frames with their headers.
const READ_SIZE: usize = 64 * 1024;

/// How many reads wait for the link: one is handled while the next one is made.
const READ_AHEAD: usize = 2;

/// Standard input, as one direction of a link.
#[derive(Debug)]
pub struct Input {
    reads: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// What was read and isn't taken yet.
    rest: Vec<u8>,
    taken: usize,
}

/// Standard output, as the other direction of a link.
#[derive(Debug)]
pub struct Output(Stdout);

impl Input {
    /// Opens it. The thread that reads it ends with the process, since nothing can interrupt it.
    pub fn open() -> io::Result<Self> {
        let (sender, reads) = mpsc::channel(READ_AHEAD);
        let read = move || {
            let mut input = io::stdin().lock();
            let mut buffer = vec![0; READ_SIZE];
            loop {
                let read = match input.read(&mut buffer) {
                    Ok(count) => Ok(buffer.get(..count).unwrap_or_default().to_vec()),
                    // The other end was closed.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Vec::new()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if sender.blocking_send(read).is_err() || is_last {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("standard input".to_owned()).spawn(read)?;
        Ok(Self { reads, rest: Vec::new(), taken: 0 })
    }
}

impl Output {
    /// Opens it.
    pub fn open() -> io::Result<Self> {
        Ok(Self(tokio::io::stdout()))
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken == self.rest.len() {
            match ready!(self.reads.poll_recv(context)) {
                Some(read) => {
                    self.rest = read?;
                    self.taken = 0;
                }
                // The thread has ended after the last read.
                None => return Poll::Ready(Ok(())),
            }
        }
        let rest = self.rest.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..count).unwrap_or_default());
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }
}
