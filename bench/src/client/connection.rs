//! One connection to an agent, or to whatever leads to one.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::error::{Context, Error, Result};
use crate::lane::{Lane, bulk_request, data_lines};
use crate::question::Way;

/// How often a socket is tried that isn't there yet: a pair that takes one connection is started anew
/// for each.
const RETRY: Duration = Duration::from_micros(200);

/// What one read takes.
const READ_SIZE: usize = 64 * 1024;

/// What a client that stalls asks for: more than all buffers on the way together hold.
const STALLED: usize = 64 * 1024 * 1024;

pub(super) struct Connection {
    stream: UnixStream,
    lane: Lane,
    /// What was read; what of it is answered was drained.
    read: Vec<u8>,
    room: Box<[u8]>,
    small_request: Vec<u8>,
}

impl Connection {
    /// Connects as soon as somebody listens, and reads the greeting if the lane has one.
    pub(super) fn open(socket: &Path, lane: Lane) -> Result<Self> {
        let stream = connect(socket).while_doing(socket.display())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self {
            stream,
            lane,
            read: Vec::new(),
            room: vec![0; READ_SIZE].into(),
            small_request: lane.small_request(),
        };
        match lane {
            Lane::Gpg => connection.expect_good("the greeting")?,
            // The first answer stands for a greeting, so that a connection is one to the agent.
            Lane::Ssh => connection.small()?,
        }
        Ok(connection)
    }

    /// One small request and its answer.
    pub(super) fn small(&mut self) -> Result<()> {
        self.stream.write_all(&self.small_request)?;
        self.expect_good("a small request")
    }

    /// The socket, when all that came was answered.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Ends the connection as a client does that is done.
    pub(super) fn farewell(mut self) -> Result<()> {
        match self.lane {
            Lane::Gpg => {
                self.stream.write_all(b"BYE\n")?;
                self.expect_good("BYE")
            }
            Lane::Ssh => Ok(()),
        }
    }

    /// Ends the connection, and waits until the other side has seen that.
    pub(super) fn close(mut self) {
        if self.stream.shutdown(Shutdown::Both).is_ok() {
            let _ = self.stream.read(&mut self.room);
        }
    }

    /// Moves that many bytes, or a few more, to the agent or from it. For gpg it needs a key.
    pub(super) fn bulk(&mut self, way: Way, bytes: usize, keygrip: &str) -> Result<()> {
        match (self.lane, way) {
            (Lane::Gpg, Way::ToAgent) => {
                self.stream.write_all(format!("SETKEY {keygrip}\nPKDECRYPT\n").as_bytes())?;
                self.expect_good("SETKEY")?;
                if self.answer()? != b"INQUIRE CIPHERTEXT\n" {
                    return Err(Error::new("no inquiry for bulk"));
                }
                let lines = data_lines();
                for _ in 0..bytes.div_ceil(lines.len()) {
                    self.stream.write_all(&lines)?;
                }
                self.stream.write_all(b"END\n")?;
                self.expect_good("bulk")
            }
            (Lane::Gpg, Way::FromAgent) => {
                self.stream.write_all(&gpg_bulk_request(bytes, keygrip))?;
                self.expect_good("SETKEY")?;
                self.expect_good("SETKEYDESC")?;
                let lines = data_lines();
                self.skip(bytes.div_ceil(lines.len()) * lines.len())?;
                self.expect_good("bulk")
            }
            (Lane::Ssh, way) => {
                let request = bulk_request(way == Way::FromAgent);
                let mut left = bytes;
                while left > 0 {
                    self.stream.write_all(&request)?;
                    let answer = self.answer()?;
                    let moved = match way {
                        Way::ToAgent => request.len(),
                        Way::FromAgent => answer.len(),
                    };
                    if !self.lane.is_good(&answer) {
                        return Err(Error::new("bulk: the agent refused"));
                    }
                    left = left.saturating_sub(moved);
                }
                Ok(())
            }
        }
    }

    /// Asks for bulk, reads nothing, and waits until no more comes.
    pub(super) fn stall(&mut self, keygrip: &str) -> Result<()> {
        const QUIET: Duration = Duration::from_millis(50);
        match self.lane {
            Lane::Gpg => self.stream.write_all(&gpg_bulk_request(STALLED, keygrip))?,
            Lane::Ssh => self.stream.write_all(&bulk_request(true).repeat(256))?,
        }
        let (start, mut last, mut since) = (Instant::now(), 0, Instant::now());
        while last == 0 || since.elapsed() < QUIET {
            if start.elapsed() > PATIENCE {
                return Err(Error::new("a client that reads nothing gets more and more"));
            }
            let waiting = rustix::io::ioctl_fionread(&self.stream)?;
            if waiting != last {
                (last, since) = (waiting, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn expect_good(&mut self, what: &str) -> Result<()> {
        let lane = self.lane;
        let answer = self.answer().while_doing(what)?;
        if lane.is_good(&answer) {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&answer);
        Err(Error::new(format!("{what}: the answer was {}", shown.trim().escape_debug())))
    }

    /// The next whole answer.
    fn answer(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(end) = self.lane.whole_answer(&self.read) {
                return Ok(self.read.drain(..end).collect());
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

/// Has the stand-in for gpg-agent give that many bytes.
fn gpg_bulk_request(bytes: usize, keygrip: &str) -> Vec<u8> {
    format!("SETKEY {keygrip}\nSETKEYDESC {bytes}\nPKDECRYPT\n").into_bytes()
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
