//! A relay between the bridge and the engine's socket, whose connections can be cut and silenced.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::{short_folder, text};

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They are forwarded.
    Moving,
    /// They are held, and so is the end of a connection. New connections are taken.
    Silent,
    /// Connections are closed, and new ones too.
    Cut,
}

/// Which connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// All of them, those to come too: the engine is far away, and the way there is harmed.
    Everything,
    /// Those that now carry the streams of a command: the bridge's link.
    Links,
}

/// Takes connections at a path of its own, and makes one to the engine for each.
pub struct Relay {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Requests for such a path fail.
    refused: Option<&'static str>,
}

struct State {
    /// How new connections are treated.
    flow: Flow,
    connections: Vec<Connection>,
    next: usize,
    ended: bool,
}

struct Connection {
    number: usize,
    flow: Flow,
    carries_streams: bool,
    ends: [UnixStream; 2],
}

impl Relay {
    /// Listens in a folder of its own for those who want to reach `engine`.
    pub fn before(engine: &Path) -> Self {
        Self::start(engine, None)
    }

    /// One that lets a request for such a path of the engine's fail.
    pub fn refusing(engine: &Path, request: &'static str) -> Self {
        Self::start(engine, Some(request))
    }

    fn start(engine: &Path, refused: Option<&'static str>) -> Self {
        let folder = short_folder("kbr");
        let path = folder.path().join("sock");
        let (listener, engine) = (UnixListener::bind(&path).unwrap(), engine.to_owned());
        let state = State { flow: Flow::Moving, connections: Vec::new(), next: 0, ended: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { state, changed, refused });
        let sharing = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if sharing.lock().ended {
                    return;
                }
                sharing.join(client, &engine);
            }
        });
        Self { path, shared, thread: Some(thread), _folder: folder }
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on bytes are treated so.
    pub fn set(&self, over: Over, flow: Flow) {
        let mut state = self.shared.lock();
        if over == Over::Everything {
            state.flow = flow;
        }
        for connection in &mut state.connections {
            if over == Over::Everything || connection.carries_streams {
                connection.flow = flow;
                if flow == Flow::Cut {
                    connection.close();
                }
            }
        }
        self.shared.changed.notify_all();
    }

    /// Cuts every connection that is open. New ones are let through.
    pub fn cut(&self) {
        self.set(Over::Everything, Flow::Cut);
        self.set(Over::Everything, Flow::Moving);
    }

    /// Where it listens, as `DOCKER_HOST` names it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// How many connections carry the streams of a command.
    pub fn links(&self) -> usize {
        self.shared.lock().connections.iter().filter(|one| one.carries_streams).count()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.set(Over::Everything, Flow::Cut);
        self.shared.lock().ended = true;
        drop(UnixStream::connect(&self.path));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Connection {
    fn close(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Joins a client to the engine, unless everything is cut or the engine is away.
    fn join(self: &Arc<Self>, client: UnixStream, engine: &Path) {
        let mut state = self.lock();
        let Ok(engine) = UnixStream::connect(engine) else { return };
        if state.flow == Flow::Cut {
            return;
        }
        let copy = |stream: &UnixStream| stream.try_clone().unwrap();
        let number = state.next;
        state.next += 1;
        let (flow, ends) = (state.flow, [copy(&client), copy(&engine)]);
        state.connections.push(Connection { number, flow, carries_streams: false, ends });
        let (to_engine, to_client) = (Arc::clone(self), Arc::clone(self));
        let (client_out, engine_out) = (copy(&client), copy(&engine));
        let requests =
            std::thread::spawn(move || to_engine.carry(number, client, engine_out, true));
        std::thread::spawn(move || {
            to_client.carry(number, engine, client_out, false);
            let _ = requests.join();
            to_client.lock().connections.retain(|connection| connection.number != number);
        });
    }

    /// Carries one direction to its end.
    fn carry(&self, number: usize, mut from: UnixStream, mut to: UnixStream, is_request: bool) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            let chunk = &buffer[..count];
            if is_request && begins_streams(chunk) {
                let mut state = self.lock();
                let mut all = state.connections.iter_mut();
                if let Some(connection) = all.find(|connection| connection.number == number) {
                    connection.carries_streams = true;
                }
            }
            if !self.let_through(number) {
                return;
            }
            if is_request && self.refused.is_some_and(|path| first_line(chunk).contains(path)) {
                let _ = from.write_all(REFUSAL.as_bytes());
                let _ = from.shutdown(Shutdown::Write);
                return;
            }
            if count == 0 || to.write_all(chunk).is_err() {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    }

    /// Waits until bytes of a connection may go on; false if it is closed.
    fn let_through(&self, number: usize) -> bool {
        let mut state = self.lock();
        loop {
            let mut all = state.connections.iter();
            match all.find(|connection| connection.number == number).map(|one| one.flow) {
                Some(Flow::Moving) => return true,
                Some(Flow::Silent) => state = self.changed.wait(state).unwrap(),
                Some(Flow::Cut) | None => return false,
            }
        }
    }
}

/// The answer to a request that is to fail.
const REFUSAL: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
                       Content-Length: 22\r\n\r\n{\"message\":\"no image\"}";

/// The first line of a request, which comes in one piece.
fn first_line(request: &[u8]) -> String {
    text(request.split(|byte| *byte == b'\r').next().unwrap_or_default())
}

/// Whether a request asks the engine to start a command, whose streams then follow.
fn begins_streams(request: &[u8]) -> bool {
    let line = first_line(request);
    line.starts_with("POST ") && line.contains("/exec/") && line.contains("/start")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PATIENCE, eventually};
    use std::time::Duration;

    /// An engine that gives every byte back.
    fn echo(path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut back = stream.try_clone().unwrap();
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut back));
            }
        });
    }

    fn ask(stream: &mut UnixStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        let mut answer = vec![0; bytes.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Sends bytes that are held: nothing comes back.
    fn is_held(stream: &mut UnixStream, bytes: &[u8]) {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(bytes).unwrap();
        stream.read_exact(&mut [0]).unwrap_err();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    #[test]
    fn bytes_are_carried_held_and_cut() {
        let folder = short_folder("kbr");
        echo(&folder.path().join("engine"));
        let relay = Relay::before(&folder.path().join("engine"));
        let connect = || UnixStream::connect(relay.path()).unwrap();
        let mut plain = connect();
        assert_eq!(ask(&mut plain, b"GET /info").unwrap(), b"GET /info");
        let mut link = connect();
        ask(&mut link, b"POST /v1.47/exec/0123/start HTTP/1.1\r\n").unwrap();
        assert_eq!(relay.links(), 1);

        relay.set(Over::Links, Flow::Silent);
        ask(&mut plain, b"plain").unwrap();
        is_held(&mut link, b"held");
        relay.set(Over::Links, Flow::Moving);
        let mut late = [0; 4];
        link.read_exact(&mut late).unwrap();
        assert_eq!(&late, b"held");

        relay.set(Over::Everything, Flow::Silent);
        let mut held = connect();
        is_held(&mut held, b"x");
        relay.set(Over::Everything, Flow::Cut);
        assert_eq!(plain.read(&mut late).unwrap(), 0);
        assert!(ask(&mut connect(), b"x").is_err());
        relay.set(Over::Everything, Flow::Moving);
        ask(&mut connect(), b"again").unwrap();
        drop((plain, link, held));
        eventually("nothing is held of those that were closed", || {
            relay.shared.lock().connections.is_empty()
        });
    }
}
