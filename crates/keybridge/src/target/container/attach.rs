//! The streams of a command by a connection of our own to the engine's socket. A client of HTTP would be
//! woken for room that nobody waits for, at each round trip.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bytes::{Buf, BytesMut};
use futures_core::Stream;
use keybridge_link::{UnixSocket, UnixSocketWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::exec::READ_AHEAD;

/// An engine that is asked to start a command answers before it has.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// An answer without its body is far shorter.
const HEAD_LIMIT: usize = 16 * 1024;

/// Why a command can't be started is said in fewer words.
const BODY_LIMIT: usize = 64 * 1024;

const START: &str = r#"{"Detach":false,"Tty":false}"#;

/// Starts a command that was made, and takes its connection over.
pub(super) async fn attach(
    socket: &Path,
    exec: &str,
) -> Result<(Frames, UnixSocketWriter), EngineError> {
    tokio::time::timeout(ANSWER_TIME, start(socket, exec)).await.unwrap_or_else(|_| {
        let why = format!("the engine doesn't answer within {} s", ANSWER_TIME.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
    })
}

async fn start(socket: &Path, exec: &str) -> Result<(Frames, UnixSocketWriter), EngineError> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!(
        "POST /exec/{exec}/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{START}",
        START.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut came = BytesMut::with_capacity(READ_AHEAD);
    let head = loop {
        if let Some(head) = Head::read(&came)? {
            break head;
        }
        if came.len() > HEAD_LIMIT {
            return Err(strange("its head has no end"));
        }
        read_more(&mut stream, &mut came).await?;
    };
    came.advance(head.size);
    if !matches!(head.status, 101 | 200) {
        let size = head.body.unwrap_or_default().min(BODY_LIMIT);
        while came.len() < size {
            read_more(&mut stream, &mut came).await?;
        }
        return Err(refusal(head.status, &came));
    }
    let socket = UnixSocket::new(stream)?;
    let writer = socket.writer()?;
    Ok((Frames { socket, came, frame: None }, writer))
}

async fn read_more(stream: &mut UnixStream, came: &mut BytesMut) -> io::Result<()> {
    match stream.read_buf(came).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn strange(what: &str) -> EngineError {
    let text = format!("the engine's answer is none of HTTP: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

/// What the engine says when it doesn't start a command.
fn refusal(status_code: u16, body: &[u8]) -> EngineError {
    let said: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = said.as_ref().and_then(|said| said.get("message")?.as_str()).map(str::to_owned);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    EngineError::DockerResponseServerError { status_code, message }
}

/// What stands before an answer's body.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// With the empty line at its end.
    size: usize,
    /// The size of the body, if it is told.
    body: Option<usize>,
}

impl Head {
    /// Reads it; nothing if more of it has to come.
    fn read(came: &[u8]) -> Result<Option<Self>, EngineError> {
        const END: &[u8] = b"\r\n\r\n";
        let Some(end) = came.windows(END.len()).position(|window| window == END) else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(came.get(..end).unwrap_or_default());
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| {
            let (version, rest) = line.split_once(' ')?;
            version.starts_with("HTTP/1.").then(|| rest.get(..3)?.parse().ok())?
        });
        let status = status.ok_or_else(|| strange("its first line has no status"))?;
        let body = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        Ok(Some(Self { status, size: end + END.len(), body }))
    }
}

/// What a command writes, in frames: a byte that tells the stream, three of nothing, four of length.
#[derive(Debug)]
pub(super) struct Frames {
    socket: UnixSocket,
    came: BytesMut,
    /// The stream of the frame that is being read, and how much of it is still to come.
    frame: Option<(u8, usize)>,
}

const FRAME_HEAD: usize = 8;

impl Stream for Frames {
    type Item = Result<LogOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frames = &mut *self;
        loop {
            if let Some(piece) = frames.take_piece() {
                return Poll::Ready(Some(Ok(piece)));
            }
            frames.came.reserve(READ_AHEAD);
            let read = std::pin::pin!(frames.socket.read_buf(&mut frames.came));
            match ready!(read.poll(context)) {
                Ok(0) => return Poll::Ready(None),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

impl Frames {
    /// The next piece of a frame that is here.
    fn take_piece(&mut self) -> Option<LogOutput> {
        loop {
            if self.frame.is_none() {
                let head: [u8; FRAME_HEAD] = self.came.get(..FRAME_HEAD)?.try_into().ok()?;
                self.came.advance(FRAME_HEAD);
                let [stream, _, _, _, size @ ..] = head;
                let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
                self.frame = Some((stream, size));
            }
            let (stream, left) = self.frame?;
            let count = left.min(self.came.len());
            self.frame = (count < left).then_some((stream, left - count));
            if count > 0 {
                let message = self.came.split_to(count).freeze();
                return Some(match stream {
                    0 => LogOutput::StdIn { message },
                    2 => LogOutput::StdErr { message },
                    _ => LogOutput::StdOut { message },
                });
            }
            if left > 0 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_all_of_it_has_come() {
        let answer = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: x\r\nContent-Length: 7\r\n\r\n\x01";
        for end in 0..answer.len() - 1 {
            assert_eq!(Head::read(&answer[..end]).unwrap(), None, "{end}");
        }
        let head = Head { status: 101, size: answer.len() - 1, body: Some(7) };
        assert_eq!(Head::read(answer).unwrap(), Some(head));
        for strange in [&b"SSH-2.0-x\r\n\r\n"[..], b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n"] {
            assert!(Head::read(strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_engines_words() {
        for (body, words) in
            [(&br#"{"message":"no such exec"}"#[..], "no such exec"), (b" x\n", "x")]
        {
            let EngineError::DockerResponseServerError { status_code, message } =
                refusal(404, body)
            else {
                panic!()
            };
            assert_eq!((status_code, message.as_str()), (404, words));
        }
    }

    #[tokio::test]
    async fn frames_are_taken_apart_wherever_they_are_cut() {
        let bytes =
            b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\x01!\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02de";
        for cut in 0..bytes.len() {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let socket = UnixSocket::new(ours).unwrap();
            let mut frames = Frames { socket, came: BytesMut::new(), frame: None };
            let (mut out, mut complaints) = (Vec::new(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                frames.came.extend_from_slice(part);
                while let Some(piece) = frames.take_piece() {
                    match piece {
                        LogOutput::StdErr { message } => complaints.extend_from_slice(&message),
                        other => out.extend_from_slice(other.as_ref()),
                    }
                }
            }
            assert_eq!((&out[..], &complaints[..]), (&b"abcde"[..], &b"!"[..]), "{cut}");
        }
    }
}
