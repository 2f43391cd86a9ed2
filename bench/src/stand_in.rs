//! A stand-in for gpg-agent, for bulk: the real one takes 4 KiB of ciphertext and sends no more than a help
//! text. It costs little, so that what is measured is the way to it.
//!
//! All bulk goes through `PKDECRYPT`, which a bridge lets pass with a lent key: the agent asks for it, or
//! gives as many bytes as the description said that was set for the key before. A description of the host's
//! own says no number.

use std::io::{self, BufRead};

use keybridge_lab::Peer;

use crate::assuan::data_lines;

/// Answers a line. A description that says a number is followed by the command that it is for.
pub(crate) fn answer(line: &[u8], peer: &mut Peer) -> io::Result<()> {
    if let Some(count) = line.strip_prefix(b"SETKEYDESC ").and_then(number) {
        peer.write("OK\n")?;
        return match peer.line()?.as_deref() {
            Some(b"PKDECRYPT") => give(peer, count),
            Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
        };
    }
    if line == b"PKDECRYPT" { take(peer) } else { peer.write("OK\n") }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Sends that many bytes in `D` lines, or a few more.
fn give(peer: &mut Peer, count: usize) -> io::Result<()> {
    let lines = data_lines();
    for _ in 0..count.div_ceil(lines.len()) {
        peer.write(&lines)?;
    }
    peer.write("OK\n")
}

/// Takes data lines up to an END. No data of ours holds one.
fn take(peer: &mut Peer) -> io::Result<()> {
    const END: &[u8] = b"\nEND\n";
    peer.write("INQUIRE CIPHERTEXT\n")?;
    let mut last = Vec::new();
    loop {
        let bytes = peer.reader().fill_buf()?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = bytes.len();
        last.extend_from_slice(bytes.get(count.saturating_sub(END.len())..).unwrap_or_default());
        last.drain(..last.len().saturating_sub(END.len()));
        peer.reader().consume(count);
        if last == END {
            return peer.write("OK\n");
        }
    }
}
