//! gpg-agent is asked for its version.

use keybridge_proto::assuan::{MAX_LINE, ResponseLine, content, unescape};
use keybridge_proto::printable;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::AgentCheckError;

/// The version of the agent that answers at the far end.
pub(super) async fn ask(stream: UnixStream) -> Result<String, AgentCheckError> {
    let mut stream = BufReader::new(stream);
    expect_ok(&read_line(&mut stream).await?)?;
    stream.write_all(b"GETINFO version\n").await?;
    let answer = read_line(&mut stream).await?;
    let version = answer.strip_prefix(b"D ").map(content).and_then(|data| unescape(data).ok());
    let Some(version) = version else {
        return Err(AgentCheckError::NoVersion(printable(content(&answer)).to_string()));
    };
    expect_ok(&read_line(&mut stream).await?)?;
    // A clean end, so that the far side has nothing to complain about.
    stream.write_all(b"BYE\n").await?;
    read_line(&mut stream).await?;
    Ok(printable(&version).to_string())
}

async fn read_line(lines: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    lines.take(MAX_LINE as u64).read_until(b'\n', &mut line).await?;
    Ok(line)
}

fn expect_ok(line: &[u8]) -> Result<(), AgentCheckError> {
    match ResponseLine::parse(line) {
        Ok(ResponseLine::Ok) => Ok(()),
        Ok(_) | Err(_) if line.is_empty() => Err(AgentCheckError::HungUp),
        Ok(_) | Err(_) => Err(AgentCheckError::Unexpected(printable(content(line)).to_string())),
    }
}
