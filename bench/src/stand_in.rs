//! A stand-in for both agents, where a real one gives no bulk: gpg-agent takes 4 KiB of ciphertext
//! and sends no more than a help text. It costs little, so that what is measured is the way to it.
//!
//! For gpg all bulk goes through `PKDECRYPT`, which a bridge lets pass with a lent key: the agent asks
//! for it, or gives as many bytes as the description said that was set for the key before.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::error::{Context, Result};
use crate::lane::{Lane, data_lines, ssh_answer};

/// What one read takes.
const READ_SIZE: usize = 64 * 1024;

/// Serves sockets until it is killed.
pub(crate) fn run(sockets: Vec<(Lane, PathBuf)>) -> Result<()> {
    let mut listening = Vec::new();
    for (lane, path) in sockets {
        let listener = UnixListener::bind(&path).while_doing(path.display())?;
        listening.push(std::thread::spawn(move || accept(lane, &listener)));
    }
    println!("ready");
    for thread in listening {
        let _ = thread.join();
    }
    Ok(())
}

fn accept(lane: Lane, listener: &UnixListener) {
    for stream in listener.incoming().flatten() {
        // The end of a connection is no failure here; the client's side is judged.
        std::thread::spawn(move || match lane {
            Lane::Gpg => serve_gpg(stream),
            Lane::Ssh => serve_ssh(stream),
        });
    }
}

fn serve_gpg(stream: UnixStream) -> io::Result<()> {
    let mut lines = BufReader::with_capacity(READ_SIZE, stream);
    lines.get_mut().write_all(b"OK Pleased to meet you, process 1\n")?;
    let mut line = Vec::new();
    let mut to_give = 0;
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.trim_ascii().split(|&byte| byte == b' ');
        match (words.next().unwrap_or_default(), words.next()) {
            (b"", None) => {}
            (b"SETKEYDESC", Some(count)) => {
                to_give = number(count);
                lines.get_mut().write_all(b"OK\n")?;
            }
            (b"PKDECRYPT", _) => match std::mem::take(&mut to_give) {
                0 => take(&mut lines)?,
                count => give(lines.get_mut(), count)?,
            },
            (b"GETINFO", Some(b"version")) => lines.get_mut().write_all(b"D 2.2.40\nOK\n")?,
            (b"BYE", _) => return lines.get_mut().write_all(b"OK closing connection\n"),
            _ => lines.get_mut().write_all(b"OK\n")?,
        }
    }
}

fn number(digits: &[u8]) -> usize {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

/// Sends that many bytes in `D` lines, or a few more.
fn give(stream: &mut UnixStream, count: usize) -> io::Result<()> {
    let lines = data_lines();
    for _ in 0..count.div_ceil(lines.len()) {
        stream.write_all(&lines)?;
    }
    stream.write_all(b"OK\n")
}

/// Takes data lines up to an END. No data of ours holds one.
fn take(lines: &mut BufReader<UnixStream>) -> io::Result<()> {
    const END: &[u8] = b"\nEND\n";
    lines.get_mut().write_all(b"INQUIRE CIPHERTEXT\n")?;
    let mut last = Vec::new();
    loop {
        let bytes = lines.fill_buf()?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = bytes.len();
        last.extend_from_slice(bytes.get(count.saturating_sub(END.len())..).unwrap_or_default());
        last.drain(..last.len().saturating_sub(END.len()));
        lines.consume(count);
        if last == END {
            return lines.get_mut().write_all(b"OK\n");
        }
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
