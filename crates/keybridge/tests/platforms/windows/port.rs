//! A TCP port that the relay for Windows reaches, and what of Linux is behind it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Listens until it is dropped, which ends what is behind it.
pub struct Port {
    number: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ended: AtomicBool,
    /// What programs complain about, which is shown with a test that fails.
    complaints: File,
    open: Mutex<Vec<TcpStream>>,
    children: Mutex<Vec<Child>>,
}

impl Port {
    /// Each connection has a program: the words that the relay sends, behind these.
    pub fn to_programs(before: Vec<String>) -> Self {
        Self::start(move |stream, shared| {
            // One byte at a time: what follows the line is the program's.
            let mut line = Vec::new();
            let mut one = BufReader::with_capacity(1, stream.try_clone().unwrap());
            one.read_until(b'\n', &mut line).unwrap();
            let line = String::from_utf8(line).unwrap();
            let words = line.trim_end_matches('\n').split('\0').map(str::to_owned);
            let words: Vec<String> = before.iter().cloned().chain(words).collect();
            let end = || OwnedFd::from(stream.try_clone().unwrap());
            let mut command = keybridge_lab::command(&words[0]);
            command.args(&words[1..]).stdin(end()).stdout(end());
            command.stderr(shared.complaints.try_clone().unwrap());
            shared.children.lock().unwrap().push(command.spawn().unwrap());
        })
    }

    /// Each connection has one to a socket.
    pub fn to_socket(path: &Path) -> Self {
        let path: PathBuf = path.to_owned();
        Self::start(move |stream, shared| {
            let Ok(socket) = UnixStream::connect(&path) else { return };
            let (mut from, mut to) = (stream.try_clone().unwrap(), socket.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                to.shutdown(Shutdown::Write)
            });
            let mut back = stream.try_clone().unwrap();
            shared.open.lock().unwrap().push(stream);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut &socket, &mut back);
                back.shutdown(Shutdown::Write)
            });
        })
    }

    fn start(join: impl Fn(TcpStream, &Shared) + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            ended: AtomicBool::new(false),
            complaints: tempfile::tempfile().unwrap(),
            open: Mutex::default(),
            children: Mutex::default(),
        });
        let sharing = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if sharing.ended.load(Ordering::SeqCst) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                join(stream, &sharing);
            }
        });
        Self { number, shared, thread: Some(thread) }
    }

    /// Where it listens, on the loopback interface.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.number)));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for mut child in self.shared.children.lock().unwrap().drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut complaints = String::new();
        let mut file = &self.shared.complaints;
        if file.rewind().and_then(|()| file.read_to_string(&mut complaints)).is_ok() {
            print!("{complaints}");
        }
    }
}
