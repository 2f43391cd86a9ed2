//! Asks the agent through the socket, as any client does.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::assuan::{MAX_LINE, ResponseLine, content, unescape};
use keybridge_proto::printable;

/// Longer than the host takes to find that its agent can't be reached.
const PATIENCE: Duration = Duration::from_secs(15);

/// The version of the agent that answers at the far end.
pub(crate) fn run(socket: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| {
        format!("{}: {error}", printable(socket.as_os_str().as_encoded_bytes()))
    };
    let stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut lines = BufReader::new(&stream);
    expect_ok(&read_line(&mut lines).map_err(failed)?)?;
    (&stream).write_all(b"GETINFO version\n").map_err(failed)?;
    let answer = read_line(&mut lines).map_err(failed)?;
    let version = answer.strip_prefix(b"D ").map(content).and_then(|data| unescape(data).ok());
    let Some(version) = version else {
        return Err(format!("the agent answered {}", printable(content(&answer))));
    };
    expect_ok(&read_line(&mut lines).map_err(failed)?)?;
    // A clean end, so that the far side has nothing to complain about.
    (&stream).write_all(b"BYE\n").and_then(|()| read_line(&mut lines)).map_err(failed)?;
    Ok(printable(&version).to_string())
}

fn read_line(lines: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn expect_ok(line: &[u8]) -> Result<(), String> {
    match ResponseLine::parse(line) {
        Ok(ResponseLine::Ok) => Ok(()),
        Ok(_) | Err(_) if line.is_empty() => Err("the agent hung up".to_owned()),
        Ok(_) | Err(_) => Err(format!("the agent answered {}", printable(content(line)))),
    }
}
