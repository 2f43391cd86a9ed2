//! One connection to an agent, or to whatever leads to one.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::assuan::{SMALL_REQUEST, data_lines};
use crate::error::{Context, Error, Result};
use crate::question::Way;

/// How often a socket is tried that isn't there yet: a pair that takes one connection is started anew
/// for each.
const RETRY: Duration = Duration::from_micros(200);

/// What one read takes.
const READ_SIZE: usize = 64 * 1024;

pub(super) struct Connection {
    stream: UnixStream,
    /// What was read; what of it is answered was drained.
    read: Vec<u8>,
    room: Box<[u8]>,
}

impl Connection {
    /// Connects as soon as somebody listens, and reads the greeting.
    pub(super) fn open(socket: &Path) -> Result<Self> {
        let stream = connect(socket).while_doing(socket.display())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self { stream, read: Vec::new(), room: vec![0; READ_SIZE].into() };
        connection.expect_ok("the greeting")?;
        Ok(connection)
    }

    pub(super) fn send_small(&mut self) -> Result<()> {
        Ok(self.stream.write_all(SMALL_REQUEST)?)
    }

    /// The answer to what [`Self::send_small`] has sent.
    pub(super) fn receive_small(&mut self) -> Result<()> {
        self.expect_ok("a small request")
    }

    /// Ends the connection, and waits until the other side has seen that.
    pub(super) fn close(mut self) {
        if self.stream.shutdown(Shutdown::Both).is_ok() {
            let _ = self.stream.read(&mut self.room);
        }
    }

    /// Moves that many bytes, or a few more, to the agent or from it.
    pub(super) fn bulk(&mut self, way: Way, bytes: usize, keygrip: &str) -> Result<()> {
        let lines = data_lines();
        let count = bytes.div_ceil(lines.len());
        match way {
            Way::ToAgent => {
                self.stream.write_all(format!("SETKEY {keygrip}\nPKDECRYPT\n").as_bytes())?;
                self.expect_ok("SETKEY")?;
                if self.line()? != b"INQUIRE CIPHERTEXT\n" {
                    return Err(Error::new("no inquiry for bulk"));
                }
                for _ in 0..count {
                    self.stream.write_all(&lines)?;
                }
                self.stream.write_all(b"END\n")?;
            }
            Way::FromAgent => {
                let request = format!("SETKEY {keygrip}\nSETKEYDESC {bytes}\nPKDECRYPT\n");
                self.stream.write_all(request.as_bytes())?;
                self.expect_ok("SETKEY")?;
                self.expect_ok("SETKEYDESC")?;
                self.skip(count * lines.len())?;
            }
        }
        self.expect_ok("bulk")
    }

    fn expect_ok(&mut self, what: &str) -> Result<()> {
        let line = self.line().while_doing(what)?;
        if line.starts_with(b"OK") {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&line);
        Err(Error::new(format!("{what}: the answer was {}", shown.trim().escape_debug())))
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                return Ok(self.read.drain(..=end).collect());
            }
            self.fill()?;
        }
    }

    /// Reads that many bytes and keeps none of them.
    fn skip(&mut self, mut count: usize) -> Result<()> {
        loop {
            let now = count.min(self.read.len());
            self.read.drain(..now);
            count -= now;
            if count == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        let count = self.stream.read(&mut self.room)?;
        if count == 0 {
            return Err(Error::new("the connection was closed"));
        }
        self.read.extend_from_slice(self.room.get(..count).unwrap_or_default());
        Ok(())
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Err(error) if is_for_later(&error) && start.elapsed() < PATIENCE => {
                std::thread::sleep(RETRY);
            }
            result => return result,
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), NotFound | ConnectionRefused | WouldBlock)
}
