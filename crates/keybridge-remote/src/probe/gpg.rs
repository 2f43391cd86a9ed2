//! gpg-agent is asked for its version.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use keybridge_proto::assuan::{MAX_LINE, ResponseLine, content, unescape};
use keybridge_proto::printable;

use super::ProbeError;

/// The version of the agent that answers at the far end.
pub(super) fn ask(stream: &UnixStream) -> Result<String, ProbeError> {
    let mut lines = BufReader::new(stream);
    expect_ok(&read_line(&mut lines)?)?;
    let mut stream = stream;
    stream.write_all(b"GETINFO version\n")?;
    let answer = read_line(&mut lines)?;
    let version = answer.strip_prefix(b"D ").map(content).and_then(|data| unescape(data).ok());
    let Some(version) = version else {
        return Err(ProbeError::Answer(printable(content(&answer)).to_string()));
    };
    expect_ok(&read_line(&mut lines)?)?;
    // A clean end, so that the far side has nothing to complain about.
    stream.write_all(b"BYE\n").and_then(|()| read_line(&mut lines))?;
    Ok(printable(&version).to_string())
}

fn read_line(lines: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn expect_ok(line: &[u8]) -> Result<(), ProbeError> {
    match ResponseLine::parse(line) {
        Ok(ResponseLine::Ok) => Ok(()),
        Ok(_) | Err(_) if line.is_empty() => Err(ProbeError::HungUp),
        Ok(_) | Err(_) => Err(ProbeError::Answer(printable(content(line)).to_string())),
    }
}
