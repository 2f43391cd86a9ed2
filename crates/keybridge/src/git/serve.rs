//! One client of the git lane: a request, and its answer.

use std::rc::Rc;
use std::time::Duration;

use keybridge_link::Stream;
use keybridge_proto::git::{Answer, BadFrame, MAX_FRAME, Request, frame_size};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::GitSigner;

/// How long a client may take to send its request, which it has whole when it connects.
const REQUEST_TIME: Duration = Duration::from_mins(1);

/// How long it may take to read the answer.
const LINGER: Duration = Duration::from_secs(10);

/// How many of the longest requests are kept, while most of them wait for their turn. Commits are a thousandth
/// of that.
const MOST_LONGEST: usize = 16;

/// The length at the beginning of a frame.
const LENGTH: usize = 4;

/// Room for the requests of all clients of a bridge. Cheap to clone; the clones are one.
#[derive(Debug, Clone)]
pub(crate) struct RequestRoom(Rc<Semaphore>);

impl Default for RequestRoom {
    fn default() -> Self {
        Self(Rc::new(Semaphore::new(MOST_LONGEST * MAX_FRAME)))
    }
}

/// Reads the request, signs, and answers. A client that goes meanwhile ends that.
pub(crate) async fn serve(
    stream: Stream,
    signer: &GitSigner,
    room: &RequestRoom,
    took_in: impl Fn(usize),
    gave_out: impl Fn(usize),
) {
    let (request, _room) = match read(&stream, room, took_in).await {
        Ok(Some(read)) => read,
        Ok(None) => return,
        Err(error) => {
            tracing::debug!(%error, "a bad request");
            answer(&stream, &Answer::Failed(error.to_string()), gave_out).await;
            return;
        }
    };
    let said = tokio::select! {
        said = signer.answer(&request) => said,
        () = gone(&stream) => return,
    };
    answer(&stream, &said, gave_out).await;
}

/// Gives a client an answer without reading its request.
pub(crate) async fn refuse(stream: Stream, refusal: Answer) {
    answer(&stream, &refusal, |_| ()).await;
}

/// The request and its room, or nothing if the client goes before it is whole.
async fn read<'a>(
    stream: &Stream,
    RequestRoom(room): &'a RequestRoom,
    took_in: impl Fn(usize),
) -> Result<Option<(Request, SemaphorePermit<'a>)>, BadFrame> {
    let mut frame = Vec::new();
    fill(stream, &mut frame, LENGTH, &took_in).await;
    let Some(size) = frame_size(&frame)? else { return Ok(None) };
    let permits = u32::try_from(size).map_err(|_| BadFrame::TooLong(size))?;
    let held = tokio::select! {
        held = room.acquire_many(permits) => held,
        () = gone(stream) => return Ok(None),
    };
    fill(stream, &mut frame, size, &took_in).await;
    match held {
        Ok(held) if frame.len() == size => Ok(Some((Request::decode(&frame)?, held))),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Reads up to this size, until the client has sent that, goes, or takes too long.
async fn fill(stream: &Stream, frame: &mut Vec<u8>, size: usize, took_in: impl Fn(usize)) {
    frame.reserve_exact(size.saturating_sub(frame.len()));
    let filling = async {
        loop {
            stream.read(|bytes| {
                let part = bytes.get(..size.saturating_sub(frame.len())).unwrap_or(bytes);
                frame.extend_from_slice(part);
                took_in(part.len());
                part.len()
            });
            if frame.len() == size || stream.is_closed() || stream.is_finished() {
                return;
            }
            stream.changed().await;
        }
    };
    let _ = timeout(REQUEST_TIME, filling).await;
}

/// Waits until the client has gone.
async fn gone(stream: &Stream) {
    while !stream.is_closed() {
        stream.changed().await;
    }
}

async fn answer(stream: &Stream, answer: &Answer, gave_out: impl Fn(usize)) {
    let frame = match answer.encode() {
        Ok(frame) => frame,
        Err(error) => {
            // A target may be able to have that at will.
            tracing::debug!(%error, "can't answer");
            return;
        }
    };
    let sending = async {
        if stream.write_all(&frame).await {
            gave_out(frame.len());
            stream.finish();
            gone(stream).await;
        }
    };
    let _ = timeout(LINGER, sending).await;
}
