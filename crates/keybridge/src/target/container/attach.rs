//! The streams of a command over our own connection to the engine's socket. An HTTP client would wake up at
//! each round trip because the socket became writable, although there is nothing to write.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bytes::{Buf, BytesMut};
use futures_core::Stream;
use keybridge_link::{LocalSocket, LocalSocketWriter, LocalStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::exec::READ_AHEAD;

/// How long the engine may take to answer, which it does before it starts the command.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The headers of an answer are far shorter.
const HEADER_LIMIT: usize = 16 * 1024;

/// How many headers are parsed; Docker sends about eight.
const MOST_FIELDS: usize = 64;

/// The size limit for the reason why a command can't be started.
const BODY_LIMIT: usize = 64 * 1024;

const START: &str = r#"{"Detach":false,"Tty":false}"#;

/// Starts a command that was created, and takes over the connection.
pub(super) async fn attach(
    socket: &Path,
    exec: &str,
) -> Result<(Frames, LocalSocketWriter), EngineError> {
    tokio::time::timeout(ANSWER_TIME, start(socket, exec)).await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", ANSWER_TIME.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
    })
}

async fn start(socket: &Path, exec: &str) -> Result<(Frames, LocalSocketWriter), EngineError> {
    let mut stream = LocalStream::connect(socket).await?;
    let request = format!(
        "POST /exec/{exec}/start HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{START}",
        START.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut received = BytesMut::with_capacity(READ_AHEAD);
    let header = loop {
        if let Some(header) = Header::parse(&received)? {
            break header;
        }
        if received.len() > HEADER_LIMIT {
            return Err(not_http(&"the header never ends"));
        }
        read_more(&mut stream, &mut received).await?;
    };
    received.advance(header.size);
    if !matches!(header.status, 101 | 200) {
        let size = header.body.unwrap_or_default().min(BODY_LIMIT);
        while received.len() < size {
            read_more(&mut stream, &mut received).await?;
        }
        return Err(refusal(header.status, &received));
    }
    let socket = LocalSocket::new(stream)?;
    let writer = socket.writer()?;
    Ok((Frames { socket, pieces: Pieces { received, frame: None } }, writer))
}

async fn read_more(stream: &mut LocalStream, received: &mut BytesMut) -> io::Result<()> {
    match stream.read_buf(received).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn not_http(why: &dyn Display) -> EngineError {
    let text = format!("the engine's answer isn't HTTP: {why}");
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

/// The error that the engine gave for a command that it didn't start.
fn refusal(status_code: u16, body: &[u8]) -> EngineError {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| json.get("message")?.as_str()).map(str::to_owned);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    EngineError::DockerResponseServerError { status_code, message }
}

/// The header of Docker's answer.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    status: u16,
    /// In bytes, with the empty line at its end.
    size: usize,
    /// The size of the body, if it is given.
    body: Option<usize>,
}

impl Header {
    /// Parses it; `None` if it isn't complete.
    fn parse(received: &[u8]) -> Result<Option<Self>, EngineError> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(received).map_err(|error| not_http(&error))?;
        let (httparse::Status::Complete(size), Some(status)) = (parsed, response.code) else {
            return Ok(None);
        };
        let mut fields = response.headers.iter();
        let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let body = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
        Ok(Some(Self { status, size, body }))
    }
}

/// A command's output, in frames: a byte that names the stream, three that are zero, four of length.
#[derive(Debug)]
pub(super) struct Frames {
    socket: LocalSocket,
    pieces: Pieces,
}

/// What was received of frames.
#[derive(Debug, Default)]
struct Pieces {
    received: BytesMut,
    /// The stream of the frame that is being read, and how much of it is still to come.
    frame: Option<(u8, usize)>,
}

const FRAME_HEADER: usize = 8;

impl Stream for Frames {
    type Item = Result<LogOutput, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frames = &mut *self;
        loop {
            if let Some(piece) = frames.pieces.take() {
                return Poll::Ready(Some(Ok(piece)));
            }
            frames.pieces.received.reserve(READ_AHEAD);
            let read = std::pin::pin!(frames.socket.read_buf(&mut frames.pieces.received));
            match ready!(read.poll(context)) {
                Ok(0) => return Poll::Ready(None),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}

impl Pieces {
    /// The next piece of a frame that was received.
    fn take(&mut self) -> Option<LogOutput> {
        loop {
            if self.frame.is_none() {
                let header: [u8; FRAME_HEADER] =
                    self.received.get(..FRAME_HEADER)?.try_into().ok()?;
                self.received.advance(FRAME_HEADER);
                let [stream, _, _, _, size @ ..] = header;
                let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
                self.frame = Some((stream, size));
            }
            let (stream, left) = self.frame?;
            let count = left.min(self.received.len());
            self.frame = (count < left).then_some((stream, left - count));
            if count > 0 {
                let message = self.received.split_to(count).freeze();
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
    fn a_header_is_parsed_when_all_of_it_has_come() {
        let answer = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: x\r\nContent-Length: 7\r\n\r\n\x01";
        for end in 0..answer.len() - 1 {
            assert_eq!(Header::parse(&answer[..end]).unwrap(), None, "{end}");
        }
        let header = Header { status: 101, size: answer.len() - 1, body: Some(7) };
        assert_eq!(Header::parse(answer).unwrap(), Some(header));
        for other in [&b"SSH-2.0-x\r\n\r\n"[..], b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n"] {
            assert!(Header::parse(other).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_refusal_has_the_engines_message() {
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

    #[test]
    fn frames_are_taken_apart_wherever_they_are_cut() {
        let bytes =
            b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\x01!\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02de";
        for cut in 0..bytes.len() {
            let mut pieces = Pieces::default();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                pieces.received.extend_from_slice(part);
                while let Some(piece) = pieces.take() {
                    match piece {
                        LogOutput::StdErr { message } => err.extend_from_slice(&message),
                        other => out.extend_from_slice(other.as_ref()),
                    }
                }
            }
            assert_eq!((&out[..], &err[..]), (&b"abcde"[..], &b"!"[..]), "{cut}");
        }
    }
}
