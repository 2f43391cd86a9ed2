//! A stand-in for gpg-agent, for what a real one can't be made to do: to send 64 MiB, to say marked
//! words, to listen at a TCP port with a chosen nonce.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::{Home, PATIENCE};

/// What one read takes: bulk is measured too.
const READ_SIZE: usize = 64 * 1024;

/// What it answers to `GETINFO version`.
pub const STAND_IN_VERSION: &str = "D 2.2.40\nOK\n";

/// Says what comes back for a line that [`StandIn`] doesn't answer itself.
type Answer = dyn Fn(&[u8], &mut Peer) -> std::io::Result<()> + Send + Sync;

/// An agent that takes connections until it is dropped.
pub struct StandIn {
    stop: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    wake: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

/// The far side of one connection.
pub struct Peer {
    reader: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl StandIn {
    /// Takes the place of the restricted socket of an agent that runs, whose keys are lent.
    pub fn at_home(
        home: &Home,
        answer: impl Fn(&[u8], &mut Peer) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        std::fs::remove_file(home.extra_socket()).unwrap();
        Self::listen(&home.extra_socket(), answer)
    }

    /// Listens at a path.
    pub fn listen(
        path: &Path,
        answer: impl Fn(&[u8], &mut Peer) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let path = path.to_owned();
        let accept = move || {
            let (stream, _) = listener.accept()?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        Self::start(accept, move || drop(UnixStream::connect(&path)), Arc::new(answer))
    }

    /// Listens at a port of this machine, and wants the nonce first. Gives back the port.
    pub fn listen_tcp(
        nonce: [u8; 16],
        answer: impl Fn(&[u8], &mut Peer) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> (Self, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let accept = move || {
            let (mut stream, _) = listener.accept()?;
            let mut said = [0; 16];
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.read_exact(&mut said)?;
            stream.set_read_timeout(None)?;
            assert_eq!(said, nonce, "the nonce opens the socket");
            Ok(Box::new(stream) as Box<dyn Stream>)
        };
        let wake = move || drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
        (Self::start(accept, wake, Arc::new(answer)), port)
    }

    fn start(
        accept: impl Fn() -> std::io::Result<Box<dyn Stream>> + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
        answer: Arc<Answer>,
    ) -> Self {
        let (stop, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&open));
        let thread = std::thread::spawn(move || {
            loop {
                let accepted = accept();
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = accepted else { continue };
                let (answer, open) = (Arc::clone(&answer), Arc::clone(&counted));
                open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let mut peer = Peer { reader: BufReader::with_capacity(READ_SIZE, stream) };
                    // The end of a connection is no failure here; the client's side is judged.
                    let _ = peer.serve(&*answer);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { stop, open, wake: Box::new(wake), thread: Some(thread) }
    }

    /// How many connections there are now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        (self.wake)();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Peer {
    /// Sends bytes as they are.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes.as_ref())
    }

    /// The bytes that arrive, unchanged.
    pub fn reader(&mut self) -> &mut impl BufRead {
        &mut self.reader
    }

    /// The next line without its end; none when the connection was closed.
    pub fn line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        line.pop_if(|&mut last| last == b'\n');
        Ok(Some(line))
    }

    /// Talks as the restricted socket of a gpg-agent does, as far as the bridge needs it.
    fn serve(&mut self, answer: &Answer) -> std::io::Result<()> {
        self.write("OK Pleased to meet you, process 1\n")?;
        while let Some(line) = self.line()? {
            match line.as_slice() {
                b"GETINFO restricted" | b"NOP" | b"RESET" => self.write("OK\n")?,
                line if line.starts_with(b"SIGKEY ") || line.starts_with(b"SETKEY ") => {
                    self.write("OK\n")?;
                }
                b"GETINFO version" => self.write(STAND_IN_VERSION)?,
                b"" | [b'#', ..] => {}
                b"BYE" => return self.write("OK closing connection\n"),
                other => answer(other, self)?,
            }
        }
        Ok(())
    }
}

/// The file that stands for a TCP socket on Windows.
pub fn native_socket_file(port: u16, nonce: &[u8; 16]) -> Vec<u8> {
    [format!("{port}\n").as_bytes(), nonce].concat()
}
