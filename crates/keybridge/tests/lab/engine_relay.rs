//! A way to an engine that can be cut.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A socket before the engine's own, whose connections can be cut.
pub struct EngineRelay {
    folder: tempfile::TempDir,
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl EngineRelay {
    /// Listens in a folder of its own.
    pub fn before(socket: &Path) -> Self {
        Self::new(socket, None)
    }

    /// One that lets a request for such a path fail.
    pub fn refusing(socket: &Path, path: &'static str) -> Self {
        Self::new(socket, Some(path))
    }

    fn new(socket: &Path, refused: Option<&'static str>) -> Self {
        let folder = keybridge_lab::short_folder("kbr");
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (socket, kept) = (socket.to_owned(), Arc::clone(&open));
        // It ends with the test's process.
        std::thread::spawn(move || accept(&listener, &socket, &kept, refused));
        Self { folder, open }
    }

    /// Where it listens, as `DOCKER_HOST` names it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("sock").display())
    }

    /// Cuts every connection that is open. New ones are let through.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            // One that has ended already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(
    listener: &UnixListener,
    socket: &Path,
    open: &Mutex<Vec<UnixStream>>,
    refused: Option<&'static str>,
) {
    for client in listener.incoming() {
        let (client, engine) = (client.unwrap(), UnixStream::connect(socket).unwrap());
        open.lock().unwrap().push(client.try_clone().unwrap());
        let pair = || (client.try_clone().unwrap(), engine.try_clone().unwrap());
        let (mut from, mut to) = pair();
        std::thread::spawn(move || {
            let _ = match refused {
                Some(path) => pass_requests(&mut from, &mut to, path),
                None => io::copy(&mut from, &mut to).map(drop),
            };
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut to, mut from) = pair();
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

/// Passes requests on, up to one for a path that is refused. A request comes in one piece.
fn pass_requests(client: &mut UnixStream, engine: &mut UnixStream, path: &str) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = client.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&piece[..count]);
        if line.lines().next().is_some_and(|line| line.contains(path)) {
            let answer = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
                          Content-Length: 22\r\n\r\n{\"message\":\"no image\"}";
            client.write_all(answer.as_bytes())?;
            return client.shutdown(Shutdown::Write);
        }
        engine.write_all(&piece[..count])?;
    }
}
