//! No client is passed to a program of Windows: no target shares its kernel.

use std::io;

use tokio::io::AsyncReadExt;

use super::LocalStream;

/// There is no value of this type.
#[derive(Debug)]
pub enum PassingSocket {}

/// There is no value of this type.
#[derive(Debug)]
pub enum ClientStream {}

/// Never called.
pub(crate) const fn write_with_passing(
    _: &LocalStream,
    _: &[u8],
    passing: &PassingSocket,
) -> usize {
    match *passing {}
}

/// Fills a buffer. Nothing comes with its bytes.
pub(crate) async fn read_with_passing(
    socket: &mut LocalStream,
    buffer: &mut [u8],
) -> io::Result<Option<PassingSocket>> {
    socket.read_exact(buffer).await?;
    Ok(None)
}
