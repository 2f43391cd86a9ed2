//! One client of the git lane: a request of an entry goes to the host, and its answer comes back.

use std::future::poll_fn;
use std::io;

use keybridge_link::{Duplex, LocalSocket};
use keybridge_proto::Lane;
use keybridge_proto::git::frame_size;
use tokio::io::Interest;

use super::session::SessionContext;

/// How much is read at a time.
const PIECE: usize = 16 * 1024;

/// Serves a client to its end. Without an answer it sees the close.
pub(super) async fn serve(mut client: LocalSocket, context: &SessionContext) {
    if let Err(error) = carry(&mut client, context).await {
        tracing::debug!(%error, "ended");
    }
}

async fn carry(client: &mut LocalSocket, context: &SessionContext) -> io::Result<()> {
    let request = read_frame(client).await?;
    let answer = tokio::select! {
        answer = forward(&request, context) => answer?,
        // Nobody is asked any longer for a client that has gone.
        () = gone(client) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    write_all(client, &answer).await
}

/// Sends a request as a whole, so that its answer comes after one round trip.
pub(super) async fn forward(request: &[u8], context: &SessionContext) -> io::Result<Vec<u8>> {
    let mut stream = context.open(Lane::Git).await.map_err(io::Error::other)?;
    if !stream.write_all(request).await {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    stream.finish();
    read_frame(&mut stream).await
}

/// Reads a frame, whose size is bounded.
async fn read_frame(from: &mut impl Duplex) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let missing = match frame_size(&frame).map_err(io::Error::other)? {
            Some(size) if size == frame.len() => return Ok(frame),
            Some(size) => size - frame.len(),
            None => 4 - frame.len(),
        };
        let room = piece.get_mut(..missing.min(PIECE)).unwrap_or_default();
        match from.try_read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => frame.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|context| from.poll_ready(Some(Interest::READABLE), context)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(to: &mut impl Duplex, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|context| to.poll_ready(Some(Interest::WRITABLE), context)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until a client has gone. It sends nothing after its request.
async fn gone(client: &mut LocalSocket) {
    let mut more = [0];
    loop {
        match client.try_read(&mut more) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let ready = poll_fn(|context| client.poll_ready(Some(Interest::READABLE), context));
                if ready.await.is_err() {
                    return;
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}
