//! The one message that carries descriptors: fields that end with NUL, the last of them empty.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use keybridge_link::{receive_descriptors, send_descriptors};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::{HandedOver, HandedSocket};
use crate::FileId;

const ACCEPTED: &[u8] = b"PLACE";

const REFUSED: &[u8] = b"NO";

/// Some paths of sockets.
const MAX_SIZE: usize = 4096;

/// Sends the lock's open file, and each socket with its path and the file that it is bound to.
pub(super) async fn send_accepted(
    stream: &UnixStream,
    lock: BorrowedFd<'_>,
    sockets: &[(&Path, FileId, BorrowedFd<'_>)],
) -> io::Result<()> {
    let mut fields = vec![ACCEPTED.to_vec()];
    let mut files = vec![lock];
    for (path, identity, listener) in sockets {
        fields.push(path.as_os_str().as_bytes().to_vec());
        fields.push(identity.to_string().into_bytes());
        files.push(*listener);
    }
    send(stream, &fields, &files).await
}

/// Sends a refusal.
pub(super) async fn send_refusal(stream: &UnixStream) -> io::Result<()> {
    send(stream, &[REFUSED.to_vec()], &[]).await
}

async fn send(stream: &UnixStream, fields: &[Vec<u8>], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut text = fields.join(&0);
    text.extend_from_slice(b"\0\0");
    let write = || send_descriptors(stream, &text, files);
    let sent = stream.async_io(Interest::WRITABLE, write).await?;
    // A new socket has room for all of it.
    if sent == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// What the older helper sends.
pub(super) enum Message {
    Accepted(HandedOver),
    Refusal,
}

/// Waits for the answer to a request.
pub(super) async fn receive(stream: &UnixStream) -> io::Result<Message> {
    let (mut text, mut files) = (Vec::new(), Vec::new());
    while !text.ends_with(b"\0\0") {
        let read = || receive_some(stream, &mut text, &mut files);
        let count = stream.async_io(Interest::READABLE, read).await?;
        if count == 0 || text.len() > MAX_SIZE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    parse(&text, files).ok_or_else(|| io::Error::other("invalid handover message"))
}

fn receive_some(
    stream: &UnixStream,
    text: &mut Vec<u8>,
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut buffer = [0; MAX_SIZE];
    let count = receive_descriptors(stream, &mut buffer, files)?;
    text.extend_from_slice(buffer.get(..count).unwrap_or_default());
    Ok(count)
}

fn parse(text: &[u8], files: Vec<OwnedFd>) -> Option<Message> {
    let mut fields = text.strip_suffix(b"\0\0")?.split(|&byte| byte == 0);
    let mut files = files.into_iter();
    match fields.next()? {
        REFUSED => return Some(Message::Refusal),
        ACCEPTED => {}
        _ => return None,
    }
    let lock = File::from(files.next()?);
    let mut sockets = Vec::new();
    while let Some(path) = fields.next() {
        let identity = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let listener = UnixListener::from(files.next()?);
        sockets.push(HandedSocket {
            path: PathBuf::from(OsStr::from_bytes(path)),
            identity,
            listener,
        });
    }
    Some(Message::Accepted(HandedOver { lock, sockets }))
}
