//! A stand-in for both agents, where a real one gives no bulk: gpg-agent takes 4 KiB of ciphertext
//! and sends no more than a help text. It costs little, so that what is measured is the way to it.
//!
//! For gpg all bulk goes through `PKDECRYPT`, which a bridge lets pass with a lent key: the agent asks
//! for it, or gives as many bytes as the description said that was set for the key before. A description of
//! the host's own says no number.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use keybridge_lab::{Peer, StandIn};

use crate::error::{Context, Result};
use crate::lane::{Lane, data_lines, ssh_answer};

/// What one read takes.
const READ_SIZE: usize = 64 * 1024;

/// Serves sockets until it is killed.
pub(crate) fn run(sockets: Vec<(Lane, PathBuf)>) -> Result<()> {
    let mut held = Vec::new();
    for (lane, path) in sockets {
        match lane {
            Lane::Gpg => held.push(StandIn::listen(&path, answer)),
            Lane::Ssh => {
                let listener = UnixListener::bind(&path).while_doing(path.display())?;
                std::thread::spawn(move || accept_ssh(&listener));
            }
        }
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// Gives or takes bulk: a description is followed by the command that it is for.
fn answer(line: &[u8], peer: &mut Peer) -> io::Result<()> {
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

fn accept_ssh(listener: &UnixListener) {
    for stream in listener.incoming().flatten() {
        // The end of a connection is no failure here; the client's side is judged.
        std::thread::spawn(move || serve_ssh(stream));
    }
}

fn serve_ssh(stream: UnixStream) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_SIZE, stream);
    let mut request = Vec::new();
    loop {
        let mut length = [0; 4];
        reader.read_exact(&mut length)?;
        request.resize(usize::try_from(u32::from_be_bytes(length)).unwrap_or_default(), 0);
        reader.read_exact(&mut request)?;
        reader.get_mut().write_all(&ssh_answer(&request))?;
    }
}
