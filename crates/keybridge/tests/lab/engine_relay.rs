//! A way to an engine that can be cut.

use std::io;
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
        let folder = keybridge_lab::short_folder("kbr");
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (socket, kept) = (socket.to_owned(), Arc::clone(&open));
        // It ends with the test's process.
        std::thread::spawn(move || accept(&listener, &socket, &kept));
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

fn accept(listener: &UnixListener, socket: &Path, open: &Mutex<Vec<UnixStream>>) {
    for client in listener.incoming() {
        let (client, engine) = (client.unwrap(), UnixStream::connect(socket).unwrap());
        open.lock().unwrap().push(client.try_clone().unwrap());
        for (mut from, mut to) in
            [(client.try_clone().unwrap(), engine.try_clone().unwrap()), (engine, client)]
        {
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
