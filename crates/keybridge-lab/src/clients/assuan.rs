//! A client of an agent's socket that speaks Assuan by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::{PATIENCE, text};

/// A connection to an agent or to a bridge. It fails the test rather than wait for ever.
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects, and reads nothing.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket)
            .unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    /// Connects, and reads a good greeting.
    pub fn greeted(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        let greeting = client.line();
        assert!(greeting.starts_with("OK"), "greeting: {greeting}");
        client
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        self.reader.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    /// The next line with its end; empty when the connection was closed.
    pub fn bytes_line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        line
    }

    /// The next line without its end.
    pub fn line(&mut self) -> String {
        text(&self.bytes_line()).trim_end().to_owned()
    }

    /// Lines up to the one that ends an answer or asks back, or up to the end.
    pub fn response(&mut self) -> Vec<u8> {
        let mut response = Vec::new();
        loop {
            let line = self.bytes_line();
            response.extend_from_slice(&line);
            let ends = [&b"OK"[..], b"ERR ", b"INQUIRE "].iter().any(|end| line.starts_with(end));
            if line.is_empty() || ends {
                return response;
            }
        }
    }

    /// Sends a command and reads its answer.
    pub fn ask(&mut self, command: impl AsRef<[u8]>) -> String {
        self.send([command.as_ref(), b"\n"].concat());
        text(&self.response())
    }

    /// Everything up to the end. A connection that was reset has ended too.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("reading to the end: {error}; so far {}", text(&rest)),
        }
        rest
    }

    /// The socket itself.
    pub fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }
}
